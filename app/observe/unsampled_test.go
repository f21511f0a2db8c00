package observe

import (
	"testing"

	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"cachelab/app/backend"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// verify tells whoever has no traces why: a sampler that was never asked is not the reason.
func TestOnlyASamplerLeavesTracesOut(t *testing.T) {
	for name, c := range map[string]struct {
		provider trace.TracerProvider
		want     int
	}{
		"without telemetry":         {nooptrace.NewTracerProvider(), 0},
		"a sampler that takes none": {sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), 2},
		"all are sampled":           {sdktrace.NewTracerProvider(), 0},
	} {
		set := &telemetry.Telemetry{TracerProvider: c.provider, MeterProvider: noopmetric.NewMeterProvider()}
		b, err := New(set, telemetry.Labels{Mode: "fixed", Scenario: "rounds"}, "run", herd.JudgeSingleFill, backend.New(backend.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		_, end := b.Observer(herd.NoObserver{}).Round(t.Context(), herd.Round{Number: 1, Workers: 2 * sliceSize})
		end(herd.RoundSummary{})
		if got := b.Unsampled(); got != c.want {
			t.Errorf("%s: the sampler left out %d traces, want %d", name, got, c.want)
		}
	}
}
