//go:build e2e

package deploy

import (
	"fmt"
	"slices"
	"testing"
)

// A gauge of the run's end is there from its first push on, and never was 0: Prometheus makes a 0 of a start time, and a look
// at the time of the run would show a p99 of 0 s and a verdict that is not ok.
func TestWhatARunSaysAtItsEndHasNoZeroAtItsStart(t *testing.T) {
	s := startServers(t)
	r := s.lab(t, "fixed", "--rounds", "2", "--ttl", "500ms")
	if r.code != 0 {
		t.Fatal(r.out)
	}
	if ok := s.query(t, fmt.Sprintf(`min_over_time(cachelab_run_verdict{instance=%q}[5m])`, r.json.Run)); !slices.Equal(ok, []float64{1}) {
		t.Errorf("the lowest verdict of a run that is ok: %v, want 1", ok)
	}
	lowest := s.query(t, fmt.Sprintf(`min_over_time(cachelab_run_latency_seconds{instance=%q}[5m])`, r.json.Run))
	if len(lowest) != 4 || slices.Min(lowest) < 0.25 { // a request of these waits for a fill of about 0.25 s
		t.Errorf("the lowest latencies are %v, want four of a fill or more", lowest)
	}
	// A histogram begins with a 0 all the same, a push before its first values.
	first := fmt.Sprintf(`min_over_time(cachelab_request_duration_seconds_count{instance=%q,outcome="waited"}[5m])`, r.json.Run)
	if counts := s.query(t, first); !slices.Equal(counts, []float64{0}) {
		t.Errorf("the first count of latencies is %v, want 0", counts)
	}
}
