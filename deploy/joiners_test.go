//go:build e2e

package deploy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// telemetry are the variables with which a process sends to the servers.
func (s *servers) telemetry() []string {
	return []string{"CACHELAB_REDIS=" + s.redis, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + s.otlp + "/v1/traces",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + s.prometheus + "/api/v1/otlp/v1/metrics"}
}

// What joiners did is stored as the coordinator prints it, who saw nothing of it.
func TestARunOfJoinersIsStoredAsItWasPrinted(t *testing.T) {
	s := startServers(t)
	listen := "127.0.0.1:" + unusedPorts(t, 1)[0]
	start(t, s.telemetry(), s.program, "backend", "--listen", listen, "--backend-capacity", "0")
	eventually(t, startLimit, "the backend answers", func() error {
		_, err := fetch(t, "http://"+listen+"/healthz")
		return err
	})
	for mode, calls := range map[string]int{"broken": 3 * 3 * 20, "coalesced": 3 * 3, "fixed": 3, "woken": 3} {
		id := "joined-" + mode
		for range 2 {
			start(t, s.telemetry(), s.program, "join", id)
		}
		r := s.lab(t, mode, "--processes", "1", "--joiners", "2", "--run-id", id, "--workers", "20", "--rounds", "3", "--ttl", "1s", "--backend", "http://"+listen)
		if r.code != 0 || !r.json.Verdict.OK || r.json.BackendCalls != calls || r.json.Run != id {
			t.Fatalf("%s: exit %d, %d backend calls:\n%s", mode, r.code, r.json.BackendCalls, r.out)
		}
		if n := strings.Count(r.out, "not available across machines"); n < 2 {
			t.Errorf("%s: age and spread are told as if the machines had one clock:\n%s", mode, r.out)
		}
		v := s.lab(t, "verify")
		if v.code != 0 || !strings.Contains(v.out, "the app, Redis, Jaeger and Prometheus agree") || regexp.MustCompile(`(?m) differs +│$`).MatchString(v.out) {
			t.Fatalf("%s: verify: exit %d:\n%s", mode, v.code, v.out)
		}
		t.Logf("%s: %s rows equal: %s", mode, find1(t, v.out, `(\d+) rows equal`), tail(v.out, 1))
		// Each process is an instance of its own.
		if got := s.query(t, fmt.Sprintf(`count(count by (instance) (last_over_time(cachelab_misses_total{cachelab_run=%q}[5m])))`, id)); len(got) != 1 || got[0] < 3 {
			t.Errorf("%s: %v instances in Prometheus, want 3", mode, got)
		}
	}
}
