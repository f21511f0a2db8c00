//go:build e2e

package deploy

import (
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// steps are those of the graphs of a page of five minutes, of one, and of an hour.
var steps = []time.Duration{time.Second, 3 * time.Second, 15 * time.Second}

// What the page promises: a wall at each expiry, as high as there are workers. A call counts when it begins, so all of a
// herd's are in one push, unless that comes within the milliseconds in which they begin: then two bars side by side are
// the wall. That is rare, and most walls are one bar.
func TestEachHerdIsAWallOfAllItsWorkers(t *testing.T) {
	s := startServers(t)
	run := s.begin(t, "broken")()
	for _, step := range steps {
		g := look(s)
		g.step = step
		g.to = g.to.Add(step).Truncate(step) // Grafana asks for whole steps; the last one is over in a moment
		g.from = g.to.Add(-5 * time.Minute)
		var walls []float64
		whole := 0
		for _, line := range g.ask(t, panelOf(t, "Backend calls").Targets[0].Expr, false) {
			last := time.Time{}
			for _, p := range line.points() {
				switch {
				case p.value == 0:
					continue
				case p.value == 50*math.Trunc(p.value/50): // one herd, or more where an interval holds several
					walls = append(walls, p.value)
					whole++
				case len(walls) > 0 && p.at.Sub(last) == step && math.Mod(walls[len(walls)-1], 50) != 0:
					walls[len(walls)-1] += p.value
				default:
					walls = append(walls, p.value)
				}
				last = p.at
			}
		}
		sum := 0.0
		for _, wall := range walls {
			sum += wall
			if math.Mod(wall, 50) != 0 || step < 4*time.Second && wall != 50 {
				t.Errorf("a bar for each %v: a wall of %v, want 50: %v", step, wall, walls)
			}
		}
		if sum != float64(run.BackendCalls) || sum != 250 || 2*whole <= len(walls) {
			t.Errorf("a bar for each %v: %v, of which %d are one bar; want 250 calls in walls of one bar", step, walls, whole)
		}
	}
}

// shades: at every zoom the time of each run is shaded from its first interval to its last bar, and no other time is.
func shades(t *testing.T, g grafana, runs []ran) {
	for _, step := range steps {
		g.step = step
		panel := panelOf(t, "Backend calls")
		shaded := map[string]map[time.Time]bool{}
		for _, s := range g.ask(t, panel.Targets[1].Expr, false) {
			mode := s.Metric["mode"]
			shaded[mode] = map[time.Time]bool{}
			for _, p := range s.Values {
				shaded[mode][p.at] = p.value == 1
				during := slices.ContainsFunc(runs, func(r ran) bool {
					return r.Mode == mode && p.at.After(r.Started) && p.at.Before(r.end().Add(step+2*time.Second))
				})
				if p.value == 1 && !during || p.value != 1 && p.value != 0 {
					t.Errorf("%s is shaded by %v at %v, when there was no run", mode, p.value, p.at)
				}
			}
			if points := int(g.to.Sub(g.from)/step) + 1; len(s.Values) != points {
				t.Errorf("%s, a point for each %v: the shade has %d of %d", mode, step, len(s.Values), points)
			}
		}
		// Bars stand in the shade, and no line goes on after its run.
		for _, title := range []string{"Backend calls", "GET: hits and misses", "Latency p50 and p99", "Wait time", "Commands per request",
			"Pool connections", "Pool use time", "Backend queue", "Backend call duration", "Goroutines", "Memory"} {
			drawn := panelOf(t, title).Targets
			for _, q := range drawn[:len(drawn)-1] { // the last is the shade
				for _, s := range g.ask(t, q.Expr, false) {
					for _, p := range s.Values {
						if p.value > 0 && !shaded[s.Metric["mode"]][p.at] {
							t.Errorf("%s, %s, a point for each %v: %v at %v is outside of the shade", title, s.Metric["mode"], step, p.value, p.at)
						}
					}
				}
			}
		}
		for _, r := range runs {
			for at, on := range shaded[r.Mode] {
				if at.After(r.Started.Add(2*time.Second)) && at.Before(r.end()) && !on {
					t.Errorf("%s is not shaded at %v, and went from %v to %v", r.Run, at, r.Started, r.end())
				}
			}
		}
	}
}

// quantiles: estimated over the whole run they are within 5 % of those that it printed, which are drawn beside them.
func quantiles(t *testing.T, g grafana, runs []ran) {
	targets := panelOf(t, "Latency p50 and p99").Targets
	for _, r := range runs {
		alone := g
		alone.run = r.Run
		for _, s := range alone.ask(t, targets[2].Expr, false) {
			q := s.Metric["quantile"]
			for _, p := range s.Values {
				if asPrinted(p.value) != r.Latency[q] || p.at.Before(r.Started) || p.at.After(r.end().Add(3*time.Second)) {
					t.Errorf("%s: %s is drawn as %v at %v, want %v ms during the run", r.Run, q, p.value, p.at, r.Latency[q])
				}
			}
			if got := float64(len(s.Values)); math.Abs(got-r.Duration) > 3 {
				t.Errorf("%s: %s is drawn for %v s, the run took %v", r.Run, q, got, r.Duration)
			}
		}
		alone.step = 10 * time.Minute // one interval
		alone.from = alone.to
		for i, q := range []string{"p50", "p99"} {
			got := numbers(alone.ask(t, targets[i].Expr, false))
			if len(got) != 1 || math.Abs(got[0]*1000/r.Latency[q]-1) > 0.05 {
				t.Errorf("%s: %s is estimated as %v s, want %v ms within 5 %%", r.Run, q, got, r.Latency[q])
			}
		}
	}
}

// What make builds says in each series which commit it is of.
func TestTheVersionIsThatOfTheCheckout(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--always", "--dirty").Output()
	want := strings.TrimSpace(string(out))
	if err != nil {
		want = "unknown" // no Git, or no checkout
	}
	s := startServers(t)
	s.lab(t, "fixed", "--rounds", "1", "--workers", "2")
	got := ask[[]string](t, s.prometheus+"/api/v1/label/service_version/values", nil)
	if !slices.Equal(got, []string{want}) {
		t.Errorf("the series are of version %q, want %q", got, want)
	}
}
