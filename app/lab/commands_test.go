package lab_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// What the store sends has a span and a count under the name that the store gives it. What else goes over the same client has
// none, however much it looks alike: a stranger's EVAL is no release, and HELLO on the way of a GET is no GET.
func TestCommandsAreSeenUnderTheNameThatTheStoreGivesThem(t *testing.T) {
	recorder, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.Off, Run: "run-1", Lookup: os.LookupEnv, Spans: recorder, Reader: kept{reader}})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), Protocol: 3, ClientName: "test"}) // not warm
	defer client.Close()
	if err := tel.InstrumentRedis(client, telemetry.Labels{Mode: "fixed", Scenario: "rounds"}, redisstore.CommandOf); err != nil {
		t.Fatal(err)
	}
	store, ctx := redisstore.NewStore(client), t.Context()
	_, _, err1 := store.Get(ctx, "key")
	_, _, _, err0 := store.GetTTL(ctx, "key")
	_, err2 := store.Lock(ctx, "lock", "A", time.Minute)
	_, _, err3 := store.Set(ctx, "key", "NX", time.Minute)
	_, err4 := store.Unlock(ctx, "lock", "A")
	_, _, _, err8 := store.GetTTL(ctx, "key")
	err5 := client.Eval(ctx, "return 1", nil).Err()
	err6 := client.Do(ctx, "SET", "other", "NX", "NX").Err()
	err7 := client.Get(ctx, "other").Err()
	for _, err := range []error{err0, err8, err1, err2, err3, err4, err5, err6, err7} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var spans []string
	for _, s := range recorder.Ended() {
		if s.DroppedAttributes() > 0 {
			t.Errorf("%s has lost %d attributes", s.Name(), s.DroppedAttributes())
		}
		text := ""
		for _, a := range s.Attributes() {
			switch a.Key {
			case "db.query.text":
				text = a.Value.AsString() + text
			case telemetry.PTTL: // of a minute
				text += fmt.Sprintf(" pttl_ms > 59000: %v", a.Value.AsInt64() > 59_000)
			}
		}
		spans = append(spans, s.Name()+": "+text)
	}
	want := []string{
		telemetry.SpanGet + ": GET ?", telemetry.SpanGet + ": GET ?; PTTL ?", telemetry.SpanLock + ": SET ? ? NX GET PX ?",
		telemetry.SpanSet + ": SET ? ? GET PX ?", telemetry.SpanDel + ": EVAL ? 1 ? ?",
		telemetry.SpanGet + ": GET ?; PTTL ? pttl_ms > 59000: true",
	}
	if !slices.Equal(spans, want) {
		t.Errorf("spans %q, want %q", spans, want)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	counted, timed, pooled := map[string]int64{}, uint64(0), int64(0)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch telemetry.Metric(m.Name) {
			case telemetry.MetricRedisCommands:
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					name, _ := p.Attributes.Value(telemetry.Command)
					counted[name.AsString()] = p.Value
				}
			case telemetry.MetricPoolUseTime:
				for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
					timed += p.Count
				}
			case telemetry.MetricPoolUsage: // redisotel's, of the pool that the commands go through
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					pooled += p.Value
				}
			}
		}
	}
	if timed != 6 || pooled != 1 {
		t.Errorf("%d commands were timed, the pool has %d connections; want 6 and 1", timed, pooled)
	}
	if got, want := fmt.Sprint(counted), fmt.Sprint(map[string]int64{"GET": 3, "SET NX PX": 1, "SET": 1, "DEL": 1, "SET, DEL": 0, "PUBLISH": 0}); got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}
