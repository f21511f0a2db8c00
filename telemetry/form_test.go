package telemetry_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"cachelab/telemetry"
	"cachelab/telemetry/otlptest"
)

const (
	temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
	histograms  = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
	needs       = "the dashboards and verify need cumulative sums and explicit buckets"
)

// The lab's own Prometheus gets what it takes and what the dashboards draw; anybody else gets what the user asked for.
func TestTheFormOfMetrics(t *testing.T) {
	const asked = histograms + "=base2_exponential_bucket_histogram, " + temporality + "=delta"
	for _, test := range []struct {
		name         string
		own          func(url string) string // the Prometheus that verify reads
		to           string                  // path that metrics go to
		cumulative   bool
		explicit     bool
		notice       string
		samples      []int64
		observations []uint64
	}{
		{"the lab's own", func(url string) string { return url }, otlptest.PrometheusPath, true, true,
			"telemetry: " + asked + " left aside for the lab's Prometheus: " + needs, []int64{0, 50, 57}, []uint64{1, 2, 3}},
		{"the lab's own by its other name", func(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) + "/" },
			otlptest.PrometheusPath, true, true, "telemetry: " + asked + " left aside for the lab's Prometheus: " + needs,
			[]int64{0, 50, 57}, []uint64{1, 2, 3}},
		{"a user's own", func(string) string { return "http://127.0.0.1:1" }, "/v1/metrics", false, false,
			" as " + asked + " says; " + needs, []int64{0, 50, 7}, []uint64{1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			receiver := otlptest.Start(t)
			// the SDK reads these from the process
			t.Setenv(temporality, "delta")
			t.Setenv(histograms, "base2_exponential_bucket_histogram")
			t.Setenv("OTEL_TRACES_EXPORTER", "none")
			t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.URL+test.to)
			t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000") // only the pushes below
			t.Setenv("CACHELAB_PROMETHEUS_URL", test.own(receiver.URL))
			tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Run: "run-1", Lookup: os.LookupEnv, Console: &bytes.Buffer{}})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(tel.Notice, test.notice) {
				t.Errorf("notice: %q, want %q", tel.Notice, test.notice)
			}
			meter := tel.MeterProvider.Meter("test")
			calls, err := meter.Int64Counter("calls")
			if err != nil {
				t.Fatal(err)
			}
			latency, err := meter.Float64Histogram("latency")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int64{0, 50} {
				calls.Add(t.Context(), n)
				latency.Record(t.Context(), 0.25)
				tel.Push(t.Context())
			}
			calls.Add(t.Context(), 7)
			latency.Record(t.Context(), 0.25)
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			var samples []int64
			var observations []uint64
			for _, m := range pushed(receiver, "calls") {
				equal(t, "cumulative", m.GetSum().AggregationTemporality == metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, test.cumulative)
				samples = append(samples, m.GetSum().DataPoints[0].GetAsInt())
			}
			for _, m := range pushed(receiver, "latency") {
				equal(t, "explicit buckets", m.GetHistogram() != nil, test.explicit)
				if h := m.GetHistogram(); h != nil {
					observations = append(observations, h.DataPoints[0].Count)
				} else {
					observations = append(observations, m.GetExponentialHistogram().DataPoints[0].Count)
				}
			}
			equal(t, "samples", fmt.Sprint(samples), fmt.Sprint(test.samples))
			equal(t, "observations", fmt.Sprint(observations), fmt.Sprint(test.observations))
		})
	}
}

func TestAFormThatIsUnknownIsAnError(t *testing.T) {
	for variable, want := range map[string]string{temporality: "cumulative or delta or lowmemory", histograms: "explicit_bucket_histogram or base2_exponential_bucket_histogram"} {
		_, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Lookup: env(variable, "deltaa")})
		if err == nil || !strings.Contains(err.Error(), variable+`="deltaa": want `+want) {
			t.Errorf("got %v", err)
		}
	}
}

// pushed are the values of a metric in the order of the pushes.
func pushed(receiver *otlptest.Receiver, name string) (all []*metricspb.Metric) {
	for _, push := range receiver.Pushes() {
		for _, rm := range push {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					if m.Name == name {
						all = append(all, m)
					}
				}
			}
		}
	}
	return all
}
