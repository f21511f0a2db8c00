package telemetry_test

import (
	"testing"

	"cachelab/telemetry"
)

// The rules of UnderscoreEscapingWithSuffixes; the stack's end-to-end test looks whether Prometheus agrees.
func TestMetricsAreStoredAs(t *testing.T) {
	for _, test := range []struct {
		telemetry.MetricInfo
		want string
	}{
		{telemetry.MetricBackendCalls.Info(), "cachelab_backend_calls_total"},
		{telemetry.MetricBackendPeak.Info(), "cachelab_backend_in_flight_peak"},
		{telemetry.MetricRequestDuration.Info(), "cachelab_request_duration_seconds"},
		{telemetry.MetricRunLatency.Info(), "cachelab_run_latency_seconds"},
		{telemetry.MetricRunActive.Info(), "cachelab_run_active"},
		{telemetry.MetricRunVerdict.Info(), "cachelab_run_verdict"},
		{telemetry.MetricPoolUseTime.Info(), "db_client_connections_use_time_milliseconds"},
		{telemetry.MetricGoAllocs.Info(), "go_memory_allocated_bytes_total"},
		{telemetry.MetricGoMemory.Info(), "go_memory_used_bytes"},
		{telemetry.MetricInfo{Name: "no.unit", Kind: telemetry.Gauge}, "no_unit"},
		{telemetry.MetricInfo{Name: "time.in.seconds", Unit: "s", Kind: telemetry.Gauge}, "time_in_seconds"},
	} {
		if got := test.Stored(); got != test.want {
			t.Errorf("%s in %q is stored as %s, want %s", test.Name, test.Unit, got, test.want)
		}
	}
}
