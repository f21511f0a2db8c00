package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"cachelab/telemetry"
	"cachelab/telemetry/otlptest"
)

// env is an environment for a test.
func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func start(t *testing.T, s telemetry.Switch, pairs ...string) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: s, Run: "run-1", Instance: "process-1", Version: "v1", Lookup: env(pairs...), Console: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// burst ends n spans, as fast as it can.
func burst(tracer trace.Tracer, n int) {
	for range n {
		_, span := tracer.Start(context.Background(), "span")
		span.End()
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The red half: the SDK's own defaults lose most of a burst, and say nothing.
func TestABurstIsLostByTheDefaultsAndNotByTheLab(t *testing.T) {
	const spans = 20_001
	receiver := otlptest.Start(t)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(receiver.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	burst(provider.Tracer("test"), spans)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatalf("the defaults said something: %v", err)
	}
	if got := len(receiver.Spans()); got >= spans {
		t.Errorf("the defaults delivered all %d spans: this test is no longer needed", got)
	}

	receiver = otlptest.Start(t)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	burst(tel.TracerProvider.Tracer("test"), spans)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	equal(t, "received", len(receiver.Spans()), spans)
	equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: spans, Exported: spans})
}

func TestAPartialSuccessCountsAsDropped(t *testing.T) {
	receiver := otlptest.Start(t)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	receiver.RejectSpans(7)
	burst(tel.TracerProvider.Tracer("test"), 100)
	if err := tel.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "7 spans rejected") {
		t.Errorf("got %v", err)
	}
	equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: 100, Exported: 93, Dropped: 7})
}

// A gRPC server takes messages of 4 MiB and refuses a larger one whole: the batch goes in smaller parts, and a span that
// is too large by itself is counted as dropped.
func TestABatchLargerThanTheReceiverTakesLosesNothing(t *testing.T) {
	const spans = 5000
	long := attribute.String("text", strings.Repeat("x", 3000)) // 6 MiB a batch
	huge := attribute.String("text", strings.Repeat("x", 5<<20))
	for _, test := range []struct {
		name string
		more []trace.SpanStartOption // of one span more
		want telemetry.SpanCounts
	}{
		{"a batch", nil, telemetry.SpanCounts{Ended: spans, Exported: spans}},
		{"a span", []trace.SpanStartOption{trace.WithAttributes(huge)}, telemetry.SpanCounts{Ended: spans + 1, Exported: spans, Dropped: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			receiver := otlptest.StartGRPC(t)
			tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc",
				"OTEL_METRICS_EXPORTER", "none",
				"OTEL_EXPORTER_OTLP_TIMEOUT", "30000") // a machine that is busy with other tests
			tracer := tel.TracerProvider.Tracer("test")
			for range spans {
				_, span := tracer.Start(context.Background(), "span", trace.WithAttributes(long))
				span.End()
			}
			if test.more != nil {
				_, span := tracer.Start(context.Background(), "span", test.more...)
				span.End()
			}
			err := tel.Shutdown(t.Context())
			if dropped := test.want.Dropped > 0; dropped != (err != nil) || dropped && !strings.Contains(err.Error(), "larger than max") {
				t.Errorf("got %v", err)
			}
			equal(t, "received", len(receiver.Spans()), spans)
			equal(t, "counts", tel.Spans(), test.want)
		})
	}
}

// A batch as large as the variables allow still goes in requests that a receiver answers soon, so the last flush sees progress.
func TestLargeBatchesGoInRequestsOfABoundedSize(t *testing.T) {
	const spans = 20_000
	receiver := otlptest.StartGRPC(t)
	// the SDK reads these from the process
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100000")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Run: "run-1", Console: &bytes.Buffer{},
		Lookup: func(name string) (string, bool) {
			if strings.HasPrefix(name, "OTEL_BSP_") {
				return os.LookupEnv(name)
			}
			return env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc",
				"OTEL_METRICS_EXPORTER", "none", "OTEL_EXPORTER_OTLP_TIMEOUT", "30000")(name)
		}})
	if err != nil {
		t.Fatal(err)
	}
	burst(tel.TracerProvider.Tracer("test"), spans)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: spans, Exported: spans})
	equal(t, "the largest request", receiver.Largest(), 2048)
}

func TestAReceiverThatDiesCostsItsSpansAndNoTime(t *testing.T) {
	for name, die := range map[string]func(*otlptest.Receiver){
		"gone":   func(r *otlptest.Receiver) { r.Stop() },
		"silent": func(r *otlptest.Receiver) { r.Silence(true) },
	} {
		t.Run(name, func(t *testing.T) {
			receiver := otlptest.Start(t)
			tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
			die(receiver)
			burst(tel.TracerProvider.Tracer("test"), 20_000)
			started := time.Now()
			err := tel.Shutdown(t.Context())
			if took := time.Since(started); took > 2*time.Second {
				t.Errorf("shutdown took %v, want under 2 s", took)
			}
			if err == nil || !strings.Contains(err.Error(), "export spans: ") || !strings.Contains(err.Error(), "export metrics: ") {
				t.Errorf("got %v, want what was not delivered", err)
			}
			equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: 20_000, Dropped: 20_000})
		})
	}
}

// A run in two modes has a telemetry for each.
func TestTelemetriesOfOneRunAreCountedApartAndReportTheRuntimeOnce(t *testing.T) {
	receiver := otlptest.Start(t)
	for i, n := range []int{1000, 2000} {
		tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Run: "run-1", WithoutRuntime: i > 0, Console: io.Discard,
			Lookup: func(name string) (string, bool) { return receiver.URL, name == "OTEL_EXPORTER_OTLP_ENDPOINT" }})
		if err != nil {
			t.Fatal(err)
		}
		burst(tel.TracerProvider.Tracer("test"), n)
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: n, Exported: n})
	}
	equal(t, "received", len(receiver.Spans()), 3000)
	reports := 0
	for _, push := range receiver.Pushes() {
		for _, resource := range push {
			for _, scope := range resource.ScopeMetrics {
				for _, m := range scope.Metrics {
					if m.Name == string(telemetry.MetricGoroutines) {
						reports++
					}
				}
			}
		}
	}
	equal(t, "reports of the Go runtime", reports, 1)
}

// A receiver that takes some and then hangs is given up a second after the last it took, not after the window it fell in.
func TestAReceiverThatHangsAfterSomeProgressCostsNoMore(t *testing.T) {
	receiver := otlptest.Start(t)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	tracer := tel.TracerProvider.Tracer("test")
	burst(tracer, 2048) // a whole batch, sent at once
	for len(receiver.Spans()) == 0 {
		time.Sleep(time.Millisecond)
	}
	receiver.Silence(true)
	burst(tracer, 20_000)
	started := time.Now()
	if err := tel.Shutdown(t.Context()); err == nil {
		t.Error("nothing is said of what was lost")
	}
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("shutdown took %v, want under 2 s", took)
	}
	equal(t, "counts", tel.Spans(), telemetry.SpanCounts{Ended: 22_048, Exported: 2048, Dropped: 20_000})
}

func TestASlowReceiverIsWaitedForAsLongAsTheVariableSays(t *testing.T) {
	receiver := otlptest.Start(t)
	receiver.Delay(1200 * time.Millisecond)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL, "OTEL_EXPORTER_OTLP_TIMEOUT", "10000")
	burst(tel.TracerProvider.Tracer("test"), 10)
	if err := tel.Shutdown(t.Context()); err != nil && strings.Contains(err.Error(), "spans") {
		t.Error(err)
	}
	equal(t, "received", len(receiver.Spans()), 10)
}

func TestAutoLeavesOutWhatNobodyTakesAndSaysSo(t *testing.T) {
	tel := start(t, telemetry.Auto, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	equal(t, "notice", tel.Notice, "telemetry: nobody takes traces at http://127.0.0.1:1/v1/traces (from OTEL_EXPORTER_OTLP_ENDPOINT), "+
		"metrics at http://127.0.0.1:1/v1/metrics (from OTEL_EXPORTER_OTLP_ENDPOINT) (make up)")
	burst(tel.TracerProvider.Tracer("test"), 10)
	equal(t, "counts", tel.Spans(), telemetry.SpanCounts{})
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	// A receiver that the user named, and that answers wrongly, is an error all the same.
	receiver := otlptest.Start(t)
	_, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.Auto, Lookup: env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.URL)})
	if err == nil {
		t.Error("no error for a wrong path")
	}
}

func TestVariablesOfTheSpecification(t *testing.T) {
	receiver := otlptest.Start(t)
	endpoint := []string{"OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL}

	tel := start(t, telemetry.On, append(endpoint, "OTEL_SDK_DISABLED", "true")...)
	burst(tel.TracerProvider.Tracer("test"), 10)
	if err := tel.Shutdown(t.Context()); err != nil || len(receiver.Spans()) != 0 || len(receiver.Pushes()) != 0 {
		t.Errorf("disabled: %v, %d spans", err, len(receiver.Spans()))
	}

	tel = start(t, telemetry.On, append(endpoint, "OTEL_TRACES_EXPORTER", "none")...)
	burst(tel.TracerProvider.Tracer("test"), 10)
	if err := tel.Shutdown(t.Context()); err != nil || len(receiver.Spans()) != 0 || len(receiver.Pushes()) == 0 {
		t.Errorf("traces none: %v, %d spans, %d pushes", err, len(receiver.Spans()), len(receiver.Pushes()))
	}

	var console bytes.Buffer
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Lookup: env("OTEL_TRACES_EXPORTER", "console", "OTEL_METRICS_EXPORTER", "none"), Console: &console})
	if err != nil {
		t.Fatal(err)
	}
	burst(tel.TracerProvider.Tracer("test"), 10)
	if err := tel.Shutdown(t.Context()); err != nil || strings.Count(console.String(), `"Name":"span"`) != 10 {
		t.Errorf("console: %v, %s", err, console.String())
	}

	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "cachelab.run=run-2,service.instance.id=process-2,deployment.environment.name=test")
	t.Setenv("OTEL_SERVICE_NAME", "another") // the SDK reads these from the process
	tel = start(t, telemetry.On, endpoint...)
	burst(tel.TracerProvider.Tracer("test"), 1)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	about := receiver.Spans()[0].Resource
	equal(t, "service.name", about["service.name"], "another")
	equal(t, "cachelab.run", about["cachelab.run"], "run-1") // whatever the variable says
	equal(t, "service.instance.id", about["service.instance.id"], "process-1")
	equal(t, "deployment.environment.name", about["deployment.environment.name"], "test")
	equal(t, "service.version", about["service.version"], "v1")
	if about["host.name"] == "" || about["process.executable.name"] == "" {
		t.Errorf("resource: %v", about)
	}
}

// The first sample of a counter is 0, and the last is the total.
func TestZerosAreTheFirstSampleAndTotalsTheLast(t *testing.T) {
	receiver := otlptest.Start(t)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	c, err := tel.MeterProvider.Meter("test").Int64Counter("calls")
	if err != nil {
		t.Fatal(err)
	}
	c.Add(t.Context(), 0)
	tel.Push(t.Context())
	c.Add(t.Context(), 50)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	var seen []int64
	for _, m := range pushed(receiver, "calls") {
		seen = append(seen, m.GetSum().DataPoints[0].GetAsInt())
	}
	if fmt.Sprint(seen) != "[0 50]" {
		t.Errorf("samples: %v, want [0 50]", seen)
	}
}

func TestBucketsTellFillsApart(t *testing.T) {
	bucket := func(d time.Duration) int {
		n := 0
		for n < len(telemetry.Buckets()) && telemetry.Buckets()[n] < d.Seconds() {
			n++
		}
		return n
	}
	a, b, c := bucket(5*time.Millisecond), bucket(50*time.Millisecond), bucket(299*time.Millisecond)
	if a == b || b == c {
		t.Errorf("fills of 5, 50 and 300 ms fall into buckets %d, %d, %d", a, b, c)
	}
	if last := telemetry.Buckets()[len(telemetry.Buckets())-1]; last != 10 {
		t.Errorf("the last bound is %v s, want the lock's TTL", last)
	}
}
