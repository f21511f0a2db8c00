//go:build e2e

package deploy

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// A run is a label of its series, whatever processes it is of; the instance is the process.
func TestSeriesNameTheirRunAndTheirProcess(t *testing.T) {
	s := startServers(t)
	compared := s.lab(t, "compare", "--rounds", "1", "--workers", "2", "--ttl", "200ms", "--backend-latency", "10ms")
	alone := s.lab(t, "fixed", "--rounds", "1", "--workers", "2", "--backend-latency", "10ms")
	if compared.code != 0 || alone.code != 0 {
		t.Fatal(compared.out, alone.out)
	}
	processes := map[string]string{} // by run
	for _, series := range look(s).ask(t, `group by (cachelab_run, instance) (last_over_time(cachelab_requests_total[5m]))`, true) {
		processes[series.Metric["cachelab_run"]] = series.Metric["instance"]
	}
	first, last := processes[compared.json.Run], processes[alone.json.Run]
	delete(processes, alone.json.Run)
	if len(processes) != 2 || first == "" || last == "" || first == last || slices.Contains(slices.Collect(maps.Values(processes)), last) {
		t.Errorf("compare is of the process %q, and so are %v; fixed is of %q", first, processes, last)
	}
	delete(processes, compared.json.Run)
	for run, process := range processes { // the other run of compare
		if process != first {
			t.Errorf("%s is of the process %q, want %q", run, process, first)
		}
	}
}

// A gauge of the run's end is there from its first push on, and never was 0: Prometheus makes a 0 of a start time, and a look
// at the time of the run would show a p99 of 0 s and a verdict that is not ok.
func TestWhatARunSaysAtItsEndHasNoZeroAtItsStart(t *testing.T) {
	s := startServers(t)
	r := s.lab(t, "fixed", "--rounds", "2", "--ttl", "500ms")
	if r.code != 0 {
		t.Fatal(r.out)
	}
	if ok := s.query(t, fmt.Sprintf(`min_over_time(cachelab_run_verdict{cachelab_run=%q}[5m])`, r.json.Run)); !slices.Equal(ok, []float64{1}) {
		t.Errorf("the lowest verdict of a run that is ok: %v, want 1", ok)
	}
	lowest := s.query(t, fmt.Sprintf(`min_over_time(cachelab_run_latency_seconds{cachelab_run=%q}[5m])`, r.json.Run))
	if len(lowest) != 4 || slices.Min(lowest) < 0.25 { // a request of these waits for a fill of about 0.25 s
		t.Errorf("the lowest latencies are %v, want four of a fill or more", lowest)
	}
	// A histogram begins with a 0 all the same, a push before its first values.
	first := fmt.Sprintf(`min_over_time(cachelab_request_duration_seconds_count{cachelab_run=%q,outcome="waited"}[5m])`, r.json.Run)
	if counts := s.query(t, first); !slices.Equal(counts, []float64{0}) {
		t.Errorf("the first count of latencies is %v, want 0", counts)
	}
}
