//go:build e2e

package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repeats is how often a mode runs at each way in.
const repeats = 10

// On a cluster, entered at each of its nodes, and behind each sentinel: one call for each expiry, and all four accounts agree.
func TestEachTopologyIsStoredAsItWasPrinted(t *testing.T) {
	for profile, what := range map[string]string{"cluster": `\(cluster of 3\)`, "sentinel": `\(sentinel: master mymaster at 127\.0\.0\.1:\d+\)`} {
		t.Run(profile, func(t *testing.T) {
			o := startTopology(t, profile)
			s := startServers(t)
			var entries []string
			for variable, port := range o.ports {
				if profile == "cluster" || regexp.MustCompile(`^SENTINEL_PORT`).MatchString(variable) {
					entries = append(entries, "redis://127.0.0.1:"+port)
				}
			}
			slices.Sort(entries)
			for i := range repeats {
				for _, mode := range []string{"fixed", "woken"} {
					s.agrees(t, what, mode, "--ttl", "500ms", "--redis", entries[i%len(entries)])
				}
			}
		})
	}
}

// agrees makes a run that has to be as its mode promises, and verifies it.
func (s *servers) agrees(t *testing.T, what string, args ...string) result {
	t.Helper()
	r := s.lab(t, args...)
	if r.code != 0 || !regexp.MustCompile(`redis redis://127\.0\.0\.1:\d+ `+what).MatchString(r.out) {
		t.Fatalf("%q: exit %d, want redis %s in:\n%s", args, r.code, what, r.out)
	}
	if v := s.lab(t, "verify"); v.code != 0 || !strings.Contains(v.out, "the app, Redis, Jaeger and Prometheus agree") {
		t.Fatalf("%q: verify: exit %d:\n%s", args, v.code, v.out)
	}
	return r
}

// In a cluster the key and its fill lock may be at home on two nodes: each counts its own, and the sums are those of the run.
func TestTheCommandsOfEachNodeAddUp(t *testing.T) {
	o := startTopology(t, "cluster")
	s := startServers(t)
	r := s.agrees(t, "", "fixed", "--ttl", "500ms", "--redis", "redis://127.0.0.1:"+o.ports["CLUSTER_PORT_1"], "--key", "product:44:price")
	by := func(what, node string) float64 {
		sum := 0.0
		for _, n := range s.query(t, fmt.Sprintf(`last_over_time(cachelab_redis_commands_total{cachelab_run=%q, %s, node=~%q}[5m])`, r.json.Run, what, node)) {
			sum += n
		}
		return sum
	}
	var nodes []float64
	for variable := range o.ports {
		node := "127.0.0.1:" + o.ports[variable]
		all := by(`command!=""`, node)
		if all > 0 {
			nodes = append(nodes, all)
		}
		if gets, locks := by(`command="GET"`, node), by(`command="SET NX PX"`, node); gets > 0 && locks > 0 {
			t.Errorf("%s has both the key (%v GET) and the lock (%v SET NX PX): choose another key", node, gets, locks)
		}
	}
	if all := by(`command!=""`, ".*"); len(nodes) != 2 || nodes[0]+nodes[1] != all {
		t.Errorf("the nodes have %v commands of %v", nodes, all)
	}
}
