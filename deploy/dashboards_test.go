//go:build e2e

package deploy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// quiet are the panels that must be empty when nothing is wrong, after ordinary runs of broken and fixed alone. All others must not.
var quiet = []string{"Alerts that fire now", "of the gallery", "Galleries", " in turn", "(other modes)"}

// otherModes finds the queries for a mode that such a test does not run.
var otherModes = regexp.MustCompile(`mode="[^"]+"|^round .+`)

// The dashboards on a real Prometheus and a real Jaeger: a fixed run on a quiet stack, then two broken runs, the
// second of which starts while the first still goes.
func TestDashboards(t *testing.T) {
	s := startServers(t)
	nothingYet := look(s)
	everyQuery(t, nothingYet, func(where string, got int, err error) {
		if err != nil || got != 0 {
			t.Errorf("no data yet: %s has %d values, %v", where, got, err)
		}
	})

	fixed := s.begin(t, "fixed", "--ttl", "1s", "--rounds", "3", "--workers", "60")()
	if firing := look(s).ask(t, `ALERTS{alertstate="firing"}`, false); len(firing) != 0 {
		t.Errorf("in a fixed run on a quiet stack fires %v", firing)
	}

	first := s.begin(t, "broken", "--ttl", "1s", "--rounds", "5")
	firstRun := ""
	eventually(t, 30*time.Second, "the first broken run has ended a round", func() error {
		for run, row := range look(s).table(t, panelOf(t, "Runs")) {
			if run != fixed.Run && row["rounds"] >= 1 {
				firstRun = run
				return nil
			}
		}
		return errors.New("not in the table")
	})
	second := s.begin(t, "broken", "--ttl", "1s", "--rounds", "3", "--workers", "20")
	stillGoing := look(s).table(t, panelOf(t, "Runs"))[firstRun]
	if stillGoing["verdict"] != 2 || stillGoing["backend calls"] <= 0 || stillGoing["backend calls"] >= 250 || stillGoing["p99"] <= 0 {
		t.Errorf("a run that still goes is shown as %v, want partial totals", stillGoing)
	}
	runs := []ran{fixed, first(), second()}
	over := time.Now()
	g := look(s)

	t.Run("alerts", func(t *testing.T) { alerts(t, g, runs, over) }) // first, as it waits for the quiet after the runs
	t.Run("every query", func(t *testing.T) {
		everyQuery(t, look(s), func(where string, got int, err error) {
			if err != nil {
				t.Errorf("%s: %v", where, err)
			}
			if empty := slices.ContainsFunc(quiet, func(what string) bool { return strings.Contains(where, what) }); empty != (got == 0) {
				t.Errorf("%s has %d values", where, got)
			}
		})
	})
	t.Run("verdict", func(t *testing.T) { verdict(t, g, runs[0], runs[2]) })
	t.Run("runs", func(t *testing.T) { runTable(t, g, runs) })
	t.Run("linked to", func(t *testing.T) { // the ten seconds of the newest run's last round
		link := g
		link.from = g.to.Add(-10 * time.Second)
		verdict(t, link, runs[0], runs[2])
		runTable(t, link, runs)
	})
	t.Run("bars", func(t *testing.T) { exactBars(t, g, runs) })
	t.Run("traces", func(t *testing.T) { traces(t, g, runs) })
	t.Run("shades", func(t *testing.T) { shades(t, g, runs) })
	t.Run("quantiles", func(t *testing.T) { quantiles(t, g, runs) })
	t.Run("variables", func(t *testing.T) {
		want := map[string][]string{"mode": {"broken", "fixed"}, "run": {runs[0].Run, runs[1].Run, runs[2].Run}}
		for _, d := range dashboards(t) {
			for _, v := range d.Templating.List {
				got := g.values(t, v)
				slices.Sort(got)
				slices.Sort(want[v.Name])
				if !slices.Equal(got, want[v.Name]) {
					t.Errorf("%s offers %v, want %v", v.Name, got, want[v.Name])
				}
			}
		}
	})
}

// everyQuery asks whatever both dashboards ask, and tells how many values came.
func everyQuery(t *testing.T, g grafana, tell func(where string, got int, err error)) {
	t.Helper()
	asked := 0
	prometheus := func(where, query string, instant bool) {
		asked++
		values := numbers(g.ask(t, query, instant))
		var err error
		if len(values) > 0 && slices.Min(values) < 0 {
			err = fmt.Errorf("a value of %v", slices.Min(values))
		}
		tell(where, len(values), err)
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				where := fmt.Sprintf("%s: %s: %s", d.UID, p.Title, q.RefID)
				if mode := otherModes.FindString(q.Expr + q.Operation); mode != "" && !strings.Contains(mode, "broken") && !strings.Contains(mode, "fixed") {
					where += " (other modes)"
				}
				if q.RefID == "Runs" { // whatever the panel is of
					where = d.UID + ": shade"
				}
				switch q.Datasource.UID {
				case "jaeger":
					asked++
					tell(where, len(g.search(t, q)), nil)
				case "prometheus":
					prometheus(where, q.Expr, q.Instant)
				default:
					t.Errorf("%s asks the data source %q", where, q.Datasource.UID)
				}
				if q.Exemplar {
					asked++
					tell(where+", exemplars", len(g.exemplars(t, q.Expr)), nil)
				}
			}
		}
		for _, v := range d.Templating.List {
			asked++
			tell(d.UID+": "+v.Name, len(g.values(t, v)), nil)
		}
	}
	if asked < 50 {
		t.Errorf("found only %d queries", asked)
	}
}

// verdict is the first row: what the newest runs of each mode printed.
func verdict(t *testing.T, g grafana, fixed, broken ran) {
	for _, test := range []struct {
		title string
		query int
		run   string
		want  float64
	}{
		{"Backend calls per expiry", 0, broken.Run, broken.CallsPerExpiry},
		{"Backend calls per expiry", 1, fixed.Run, fixed.CallsPerExpiry},
		{"Calls saved", 0, "", 1 - fixed.CallsPerExpiry/broken.CallsPerExpiry},
		{"Peak in flight", 0, broken.Run, float64(broken.BackendPeak)},
		{"Peak in flight", 1, fixed.Run, float64(fixed.BackendPeak)},
		{"Latency p99", 0, broken.Run, broken.Latency["p99"]},
		{"Latency p99", 1, fixed.Run, fixed.Latency["p99"]},
	} {
		q := panelOf(t, test.title).Targets[test.query]
		got := g.ask(t, q.Expr, q.Instant)
		if len(got) != 1 || got[0].Metric["cachelab_run"] != test.run {
			t.Errorf("%s: got %v, want one value of %q", test.title, got, test.run)
			continue
		}
		value := got[0].Value.value
		if test.title == "Latency p99" {
			value = asPrinted(value)
		}
		if value != test.want {
			t.Errorf("%s: got %v, want %v", test.title, value, test.want)
		}
	}
}

// asPrinted is a duration in seconds as a run's JSON has it: in milliseconds, cut off after the microsecond.
func asPrinted(seconds float64) float64 {
	return float64(time.Duration(math.Round(seconds*1e9)).Microseconds()) / 1000
}

func runTable(t *testing.T, g grafana, runs []ran) {
	got := g.table(t, panelOf(t, "Runs"))
	if len(got) != len(runs) {
		t.Errorf("%d runs, want %d", len(got), len(runs))
	}
	for _, r := range runs {
		row := got[r.Run]
		started := time.UnixMilli(int64(row["started"]))
		if late := started.Sub(r.Started); late < 0 || late > 2*time.Second {
			t.Errorf("%s started %v after it did", r.Run, late)
		}
		delete(row, "started")
		row["p99"] = asPrinted(row["p99"])
		want := map[string]float64{
			"workers": float64(r.Workers), "rounds": float64(r.Rounds), "backend calls": float64(r.BackendCalls),
			"expiries": float64(r.Expiries), "calls per expiry": r.CallsPerExpiry, "p99": r.Latency["p99"], "verdict": 1,
		}
		if !maps.Equal(row, want) {
			t.Errorf("%s is shown as %v, want %v", r.Run, row, want)
		}
	}
}

// exactBars adds the bars up: at every zoom they are the runs' totals.
func exactBars(t *testing.T, g grafana, runs []ran) {
	want := map[string]map[string]float64{"Backend calls": {}, "Waiters": {}}
	for _, r := range runs {
		want["Backend calls"][r.Mode] += float64(r.BackendCalls)
		want["Waiters"][r.Mode] += float64(r.Outcomes["waited"])
	}
	for _, step := range zooms {
		zoomed := g
		zoomed.step = step
		zoomed.to = g.to.Add(6 * time.Minute) // a point that is further from the runs than Prometheus looks back by itself
		since := zoomed.to.Sub(runs[0].Started) + time.Minute
		zoomed.from = zoomed.to.Add(-(since + step).Truncate(step))
		for title, want := range want {
			if got := sums(zoomed.ask(t, panelOf(t, title).Targets[0].Expr, false), "mode"); !maps.Equal(got, want) {
				t.Errorf("%s, a bar for each %v: %v, want %v", title, step, got, want)
			}
		}
		for _, mode := range []string{"broken", "fixed"} {
			requests := 0
			for _, r := range runs {
				if r.Mode == mode {
					requests += r.Requests
				}
			}
			got := sums(zoomed.ask(t, panelOf(t, "Latency, "+mode).Targets[0].Expr, false), "le")
			if got["+Inf"] != float64(requests) {
				t.Errorf("latency, %s, a cell for each %v: %v requests, want %d", mode, step, got["+Inf"], requests)
			}
		}
	}
	// Two runs at once are told apart.
	for _, r := range runs {
		alone := g
		alone.run = r.Run
		got := sums(alone.ask(t, panelOf(t, "Backend calls").Targets[0].Expr, false), "mode")
		if want := map[string]float64{r.Mode: float64(r.BackendCalls)}; !maps.Equal(got, want) {
			t.Errorf("%s alone: %v, want %v", r.Run, got, want)
		}
		if rows := alone.table(t, panelOf(t, "Runs")); len(rows) != 1 || rows[r.Run] == nil {
			t.Errorf("%s alone: the table shows %v", r.Run, rows)
		}
	}
}

// sums adds up each line's points.
func sums(result []series, label string) map[string]float64 {
	all := map[string]float64{}
	for _, s := range result {
		for _, p := range s.points() {
			all[s.Metric[label]] += p.value
		}
	}
	return all
}

// traces: each row of the tables, and each exemplar, is a round of a run of this mode.
func traces(t *testing.T, g grafana, runs []ran) {
	known := map[string]string{}
	rounds := map[string]int{}
	for _, r := range runs {
		for _, slices := range r.TraceIDs {
			for _, id := range slices {
				known[id] = r.Mode
				rounds[r.Mode]++
			}
		}
	}
	for _, mode := range []string{"broken", "fixed"} {
		q := panelOf(t, "Round traces, "+mode).Targets[0]
		got := g.search(t, q)
		if want := min(q.Limit, rounds[mode]); len(got) != want {
			t.Errorf("%d traces of %s rounds, want %d", len(got), mode, want)
		}
		newest, latest := "", time.Time{}
		for _, r := range runs {
			if end := r.end(); r.Mode == mode && end.After(latest) {
				newest, latest = r.TraceIDs[r.Rounds-1][0], end
			}
		}
		if !slices.ContainsFunc(got, func(trace jaegerTrace) bool { return trace.TraceID == newest }) {
			t.Errorf("the newest %s round, %s, is not in the table", mode, newest)
		}
		for _, trace := range got {
			if known[trace.TraceID] != mode {
				t.Errorf("the trace %s is none of a %s round", trace.TraceID, mode)
			}
		}
		for _, id := range g.exemplars(t, panelOf(t, "Latency, "+mode).Targets[0].Expr) {
			if known[id] != mode {
				t.Errorf("an exemplar of %s leads to %s, which is none of its rounds", mode, id)
			}
		}
	}
}

// alerts: the herd's is there within 5 s of the first broken backend call and gone 20 s after the last.
func alerts(t *testing.T, g grafana, runs []ran, over time.Time) {
	calls := g.ask(t, panelOf(t, "Backend calls").Targets[0].Expr, false)
	var herd time.Time
	for _, s := range calls {
		for _, p := range s.Values {
			if s.Metric["mode"] == "broken" && p.value > 0 && herd.IsZero() {
				herd = p.at
			}
		}
	}
	history := map[string]time.Time{}
	for _, s := range g.ask(t, panelOf(t, "Alerts over time").Targets[0].Expr, false) {
		history[s.Metric["alertname"]] = s.Values[0].at
	}
	if names := slices.Sorted(maps.Keys(history)); !slices.Equal(names, []string{"BackendSaturated", "Herd"}) {
		t.Errorf("%v fired", names)
	}
	if late := history["Herd"].Sub(herd); late < 0 || late > 5*time.Second {
		t.Errorf("Herd fired %v after the herd", late)
	}
	now := panelOf(t, quiet[0]).Targets[0]
	if firing := g.ask(t, now.Expr, now.Instant); len(firing) == 0 {
		t.Error("nothing fires at the end of a broken run")
	}
	eventually(t, 20*time.Second-time.Since(over), "no alert is left", func() error {
		if firing := look(g.servers).ask(t, now.Expr, now.Instant); len(firing) > 0 {
			return fmt.Errorf("%v", firing)
		}
		return nil
	})
	t.Logf("Herd fired %v after the first broken call, and nothing was left %v after the last run", history["Herd"].Sub(herd), time.Since(over).Round(time.Second))
}

// Fills of 5, 50 and 300 ms look different in every latency panel.
func TestLatencyPanelsTellFillsApart(t *testing.T) {
	s := startServers(t)
	var p50s, p99s []float64
	var dense []string
	for _, fill := range []string{"5ms", "50ms", "300ms"} {
		run := s.begin(t, "broken", "--ttl", "200ms", "--rounds", "4", "--workers", "10", "--backend-capacity", "0",
			"--backend-jitter", "0", "--backend-latency", fill)()
		g := look(s)
		g.run = run.Run
		quantiles := panelOf(t, "Latency p50 and p99").Targets
		p50s = append(p50s, slices.Max(numbers(g.ask(t, quantiles[0].Expr, false))))
		p99s = append(p99s, slices.Max(numbers(g.ask(t, quantiles[1].Expr, false))))
		dense = append(dense, densest(g.ask(t, panelOf(t, "Latency, broken").Targets[0].Expr, false)))
	}
	t.Logf("p50 %v, p99 %v, densest cells %v", p50s, p99s, dense)
	for i := range 2 {
		if p50s[i+1] < 2*p50s[i] || p99s[i+1] < 2*p99s[i] || dense[i] == dense[i+1] {
			t.Errorf("two fills look alike: p50 %v, p99 %v, densest cells %v", p50s, p99s, dense)
		}
	}
}

// densest is the upper bound of the heatmap's bucket with the most requests.
func densest(result []series) string {
	bounds := map[float64]string{}
	total := map[float64]float64{}
	for le, n := range sums(result, "le") {
		bound := math.Inf(1)
		if le != "+Inf" {
			fmt.Sscan(le, &bound)
		}
		bounds[bound], total[bound] = le, n
	}
	best, most, below := "", 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(total)) { // buckets count what is below them, too
		if n := total[bound] - below; n > most {
			best, most = bounds[bound], n
		}
		below = total[bound]
	}
	return best
}
