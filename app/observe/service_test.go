package observe_test

import (
	"context"
	"maps"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/backend"
	"cachelab/app/observe"
	"cachelab/telemetry"
)

// priceService is the backend's side of calls, with its spans in memory.
func priceService(t *testing.T) (*telemetry.Telemetry, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	set, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.Off, Run: "test", Lookup: func(string) (string, bool) { return "", false }, Spans: spans})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Shutdown(context.Background()) })
	return set, spans
}

// The step that fails says why, and so does the call; one that found a place has not queued.
func TestTheSpansOfThePriceService(t *testing.T) {
	fails, err := backend.ParseFailures("2")
	if err != nil {
		t.Fatal(err)
	}
	const call, queued, compute = telemetry.SpanPrice, telemetry.SpanQueued, telemetry.SpanCompute
	synctest.Test(t, func(t *testing.T) {
		set, spans := priceService(t)
		s := backend.New(backend.Config{Latency: time.Second, Capacity: 1, Failures: fails, Probe: observe.Service(set, "run-1", false)})
		var calls sync.WaitGroup
		load := func(leaves time.Duration) {
			calls.Go(func() {
				ctx, leave := context.WithTimeout(t.Context(), leaves)
				defer leave()
				_, _ = s.Load(ctx, "key")
			})
			synctest.Wait()
		}
		load(time.Hour)           // 1: answered
		load(time.Hour)           // 2: queues, and fails
		load(time.Second / 2)     // 3: leaves the queue
		load(5 * time.Second / 2) // 4: leaves the work
		calls.Wait()

		want := map[int]map[string]string{ // error.type by span; "" for status Unset
			1: {call: "", compute: ""},
			2: {call: "unavailable", queued: "", compute: "unavailable"},
			3: {call: "context", queued: "context"},
			4: {call: "context", queued: "", compute: "context"},
		}
		number := map[trace.SpanID]int{}
		for _, one := range spans.Ended() {
			if one.Name() == call {
				for _, a := range one.Attributes() {
					if a.Key == telemetry.CallNumber {
						number[one.SpanContext().SpanID()] = int(a.Value.AsInt64())
					}
				}
			}
		}
		got := map[int]map[string]string{}
		for _, one := range spans.Ended() {
			n := number[one.SpanContext().SpanID()]
			kind := trace.SpanKindServer
			if one.Name() != call {
				n, kind = number[one.Parent().SpanID()], trace.SpanKindInternal
			}
			if one.SpanKind() != kind {
				t.Errorf("the kind of %s is %v, want %v", one.Name(), one.SpanKind(), kind)
			}
			if got[n] == nil {
				got[n] = map[string]string{}
			}
			got[n][one.Name()] = errorType(t, one)
		}
		for n, spans := range want {
			if !maps.Equal(got[n], spans) {
				t.Errorf("spans of call %d: %q, want %q", n, got[n], spans)
			}
		}
		if len(got) != len(want) {
			t.Errorf("spans of %d calls, want %d", len(got), len(want))
		}
	})
}

// Over HTTP a call is one trace with one span on each side, and the service's steps in its own.
func TestACallOverHTTPHasOneSpanOnEachSide(t *testing.T) {
	fails, err := backend.ParseFailures("2")
	if err != nil {
		t.Fatal(err)
	}
	set, spans := priceService(t)
	runs := backend.NewRuns(backend.Config{Failures: fails}, func(run string) backend.Probe { return observe.Service(set, run, true) })
	server := httptest.NewServer(backend.NewHandler(runs, backend.HandlerConfig{Trace: set.Served}))
	defer server.Close()
	client, err := backend.Dial(t.Context(), backend.ClientConfig{URL: server.URL, Run: "run-1", Limit: time.Minute, Callers: 1, Transport: telemetry.Carried})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 2 {
		ctx, caller := set.TracerProvider.Tracer("test").Start(t.Context(), "caller", trace.WithSpanKind(trace.SpanKindClient))
		_, _ = client.Load(ctx, "key")
		caller.End()
	}
	if _, err := client.Report(t.Context()); err != nil { // is no call
		t.Error(err)
	}

	names := map[trace.SpanID]string{{}: "none"}
	for _, s := range spans.Ended() {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	edges, failed := map[string]int{}, map[string]int{}
	for _, s := range spans.Ended() {
		edge := names[s.Parent().SpanID()] + " > " + s.Name() + " " + s.SpanKind().String()
		edges[edge]++
		if kind := errorType(t, s); kind != "" {
			failed[s.Name()+" "+kind]++
		}
		for _, a := range s.Attributes() {
			if a.Key == telemetry.Run && a.Value.AsString() != "run-1" {
				t.Errorf("%s is of run %q", s.Name(), a.Value.AsString())
			}
		}
	}
	want := map[string]int{"none > caller client": 2, "caller > GET /price server": 2, "GET /price > compute internal": 2}
	if !maps.Equal(edges, want) {
		t.Errorf("spans: %v, want %v", edges, want)
	}
	if want := map[string]int{"GET /price unavailable": 1, "compute unavailable": 1}; !maps.Equal(failed, want) {
		t.Errorf("failed: %v, want %v", failed, want)
	}
}
