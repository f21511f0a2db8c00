package lab_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"cachelab/app/internal/redistest"
	"cachelab/telemetry"
)

// Units, kinds and descriptions of the table are those of a real run, and what it reports of its own is in the table. What
// libraries say of their metrics is theirs.
func TestTheTableOfMetricsIsWhatARunReports(t *testing.T) {
	c := config(t, redistest.Start(t).URL())
	c.Workers, c.Rounds = 3, 1
	o := watch(t, c, "fixed")
	reported := map[telemetry.Metric]telemetry.MetricInfo{}
	for _, scope := range o.metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			reported[telemetry.Metric(m.Name)] = telemetry.MetricInfo{Name: telemetry.Metric(m.Name), Unit: m.Unit, Kind: kindOf(m.Data), What: m.Description}
		}
	}
	for _, want := range telemetry.Metrics() {
		got, there := reported[want.Name]
		if want.What == "" {
			got.What = ""
		}
		if !there || got != want {
			t.Errorf("a run reports %+v, the table says %+v", got, want)
		}
		delete(reported, want.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if strings.HasPrefix(string(name), "cachelab.") {
			t.Errorf("%s is not in the table, or twice", name)
		}
	}
}

func kindOf(data metricdata.Aggregation) telemetry.Kind {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			return telemetry.Counter
		}
	case metricdata.Sum[float64]:
		if d.IsMonotonic {
			return telemetry.Counter
		}
	case metricdata.Histogram[int64], metricdata.Histogram[float64]:
		return telemetry.Histogram
	}
	return telemetry.Gauge
}
