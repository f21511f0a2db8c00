package telemetry

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// sink keeps what the latest export said of each series: "metric mode" -> start and time.
type sink struct{ series map[string][2]time.Time }

func (s *sink) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}
func (s *sink) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}
func (s *sink) ForceFlush(context.Context) error { return nil }
func (s *sink) Shutdown(context.Context) error   { return nil }
func (s *sink) Export(_ context.Context, data *metricdata.ResourceMetrics) error {
	s.series = map[string][2]time.Time{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			each(m.Data, func(_ bool, attributes attribute.Set, start *time.Time, at time.Time) {
				mode, _ := attributes.Value(Mode)
				s.series[m.Name+" "+mode.AsString()] = [2]time.Time{*start, at}
			})
		}
	}
	return nil
}

// Prometheus makes a 0 of each start, at that time: a gauge must have none, and a series that is born late must start when
// it was not there yet, not at the beginning of the run.
func TestASeriesStartsAtTheExportBeforeItsFirst(t *testing.T) {
	out := &sink{}
	reader := sdkmetric.NewPeriodicReader(newStarts(out), sdkmetric.WithInterval(time.Hour))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	export := func() {
		t.Helper()
		if err := provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	meter := provider.Meter("test")
	calls, _ := meter.Int64Counter("calls")
	took, _ := meter.Float64Histogram("took")
	verdict, _ := meter.Int64Gauge("verdict")
	latency, _ := meter.Float64Gauge("latency")
	inUse, _ := meter.Int64UpDownCounter("in use")
	mode := func(name string) metric.MeasurementOption { return metric.WithAttributes(Mode.String(name)) }

	begun := time.Now()
	calls.Add(t.Context(), 0, mode("broken"))
	export()
	first := out.series["calls broken"]
	if first[0].After(begun) {
		t.Errorf("what is there from the beginning starts at %v, want the instrument's beginning", first[0])
	}

	took.Record(t.Context(), 1, mode("broken"))
	export()
	second := out.series["took broken"]
	if !second[0].Equal(first[1]) {
		t.Errorf("a histogram that came with the second export starts at %v, want the first export's %v", second[0], first[1])
	}

	took.Record(t.Context(), 1, mode("broken"))
	took.Record(t.Context(), 1, mode("fixed"))
	calls.Add(t.Context(), 3, mode("fixed"))
	verdict.Record(t.Context(), 1)
	latency.Record(t.Context(), 0.3)
	inUse.Add(t.Context(), 1)
	export()
	for name, want := range map[string]time.Time{
		"calls broken": first[0], "took broken": first[1], "took fixed": second[1], "calls fixed": second[1],
		"verdict ": time.Unix(0, 0), "latency ": time.Unix(0, 0), "in use ": time.Unix(0, 0),
	} {
		if got, ok := out.series[name]; !ok || !got[0].Equal(want) || !got[1].After(got[0]) {
			t.Errorf("%q: start %v, time %v, want the start %v", name, got[0], got[1], want)
		}
	}
}
