package telemetry_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"cachelab/telemetry"
	"cachelab/telemetry/otlptest"
)

// calls makes spans of n callers, each with one of the price service under it.
func calls(tel *telemetry.Telemetry, n int) {
	for range n {
		ctx, caller := tel.TracerProvider.Tracer("test").Start(context.Background(), "caller")
		_, server := tel.PriceService.Tracer("test").Start(ctx, "server", trace.WithSpanKind(trace.SpanKindServer))
		server.End()
		caller.End()
	}
}

func TestThePriceServiceIsAServiceOfItsOwn(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "renamed")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	receiver := otlptest.Start(t)
	tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	calls(tel, 10)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	equal(t, "counts of both", tel.Spans(), telemetry.SpanCounts{Ended: 20, Exported: 20})
	want := map[string][2]string{"caller": {"renamed", "process-1"}, "server": {"price-service", "process-1-price-service"}}
	got := map[string]int{}
	for _, s := range receiver.Spans() {
		got[s.Name]++
		equal(t, "service.name of "+s.Name, s.Resource["service.name"], want[s.Name][0])
		equal(t, "service.instance.id of "+s.Name, s.Resource["service.instance.id"], want[s.Name][1])
		for key, value := range map[string]string{"cachelab.run": "run-1", "service.version": "v1", "deployment.environment.name": "test"} {
			equal(t, key+" of "+s.Name, s.Resource[key], value)
		}
	}
	equal(t, "spans of the lab", got["caller"], 10)
	equal(t, "spans of the price service", got["server"], 10)
}

// A call has spans on both sides, or on none.
func TestThePriceServiceFollowsTheSamplingOfItsCallers(t *testing.T) {
	for sampler, all := range map[string][2]int{"always_off": {0, 0}, "parentbased_always_off": {0, 0}, "traceidratio": {1, 199}, "always_on": {200, 200}} {
		t.Run(sampler, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
			receiver := otlptest.Start(t)
			tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
			calls(tel, 200)
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			perTrace, calls := map[string]int{}, 0
			for _, s := range receiver.Spans() {
				perTrace[string(s.TraceId)]++
			}
			for id, n := range perTrace {
				calls++
				equal(t, "spans of trace "+id, n, 2)
			}
			if calls < all[0] || calls > all[1] {
				t.Errorf("%d calls have spans, want %d to %d", calls, all[0], all[1])
			}
		})
	}
}

// A service that many runs share tells each what became of its spans, when it is asked, and goes on.
func TestSpansAreCountedForEachRun(t *testing.T) {
	receiver := otlptest.Start(t)
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Lookup: env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL,
		"OTEL_BSP_SCHEDULE_DELAY", "3600000"), ByRun: true, Instance: "process-1"})
	if err != nil {
		t.Fatal(err)
	}
	spans := func(run string, n int) {
		for range n {
			_, span := tel.PriceService.Tracer("test").Start(context.Background(), "span", trace.WithAttributes(telemetry.Run.String(run)))
			span.End()
		}
	}
	spans("a", 10)
	spans("b", 3)
	equal(t, "of a", tel.SpansOf(t.Context(), "a"), telemetry.SpanCounts{Ended: 10, Exported: 10})
	equal(t, "received by then", len(receiver.Spans()), 13)
	spans("a", 5)
	receiver.Stop()
	equal(t, "of a, when nobody takes them", tel.SpansOf(t.Context(), "a"), telemetry.SpanCounts{Ended: 15, Exported: 10, Dropped: 5})
	equal(t, "of b", tel.SpansOf(t.Context(), "b"), telemetry.SpanCounts{Ended: 3, Exported: 3})
	equal(t, "of a run that nobody knows", tel.SpansOf(t.Context(), "c"), telemetry.SpanCounts{})
	_ = tel.Shutdown(t.Context())
	if _, said := receiver.Spans()[0].Resource["cachelab.run"]; said {
		t.Error("the resource says that it is of one run")
	}
}
