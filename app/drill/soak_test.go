//go:build soak

package drill_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/drill"
	"cachelab/app/facts"
)

// TestSoakAllDrills is "make drills", and the same on a real Redis.
func TestSoakAllDrills(t *testing.T) {
	all := func(t *testing.T, redis string) {
		started := time.Now()
		out := program(t, nil, "drill", "all", "--redis", redis, "--json", "-")
		equal(t, "exit code", out.code, cli.ExitOK)
		if took := time.Since(started); took > 6*time.Minute {
			t.Errorf("took %v, want under 6 minutes", took)
		}
		runs := decode[[]facts.Run](t, out.stdout)
		all := drill.All()
		if redis == "embedded" {
			all = slices.DeleteFunc(all, func(d drill.Drill) bool { return d.Owns == drill.Pair || d.Owns == drill.Cluster })
			equal(t, "drills left out", strings.Count(out.stderr, "is left out: this drill starts redis-server processes of its own"), len(drill.All())-len(all))
		}
		equal(t, "runs", len(runs), len(all))
		for i, d := range all {
			equal(t, "drill", runs[i].Drill, d.Name)
			equal(t, "verdict of "+d.Name+" ok", runs[i].Verdict.OK, true)
			t.Logf("%s: %s", d.Name, runs[i].Verdict.Text)
		}
		if !strings.Contains(out.stderr, "│ drill ") {
			t.Error("no table")
		}
	}
	t.Run("embedded", func(t *testing.T) { all(t, "embedded") })
	t.Run("redis-server", func(t *testing.T) { onReal(t, all) })
}
