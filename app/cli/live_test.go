package cli_test

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/telemetry/otlptest"
)

func decodeAll(t *testing.T, text string) []facts.Run {
	t.Helper()
	var runs []facts.Run
	if err := json.Unmarshal([]byte(text), &runs); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return runs
}

func TestLiveShowsTheHerdAndTheFixInTurn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, redis string) {
		receiver := otlptest.Start(t)
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "CACHELAB_GRAFANA_URL": "http://grafana.example/"}
		out := run(t.Context(), t, env, "live", "--redis", redis, "--telemetry", "on", "--json", "-",
			"--each", "1s", "--for", "4s", "--ttl", "300ms", "--backend-latency", "100ms")
		equal(t, "exit code", out.code, cli.ExitOK)
		runs := decodeAll(t, out.stdout)
		if len(runs) != 2 || runs[0].Mode != "broken" || runs[1].Mode != "fixed" || runs[0].ID != runs[1].ID {
			t.Fatalf("runs: %+v\n%s", runs, out.stderr)
		}
		broken, fixed := runs[0], runs[1]
		if broken.BackendCalls <= broken.Expiries || broken.BackendCalls != broken.Gets.Miss || broken.Expiries < 2 {
			t.Errorf("broken: %d calls, %d misses, %d expiries", broken.BackendCalls, broken.Gets.Miss, broken.Expiries)
		}
		equal(t, "broken's verdict", broken.Verdict.OK && !broken.Verdict.Invariant, true)
		equal(t, "Redis counted in broken", broken.RedisCommands, facts.RedisCommands{Commands: redisCommands(broken), Standing: "exact"})
		checkFixed(t, fixed, fixed.Expiries) // Redis's counts too
		if fixed.Expiries < 2 || fixed.Outcomes["waited"] == 0 || fixed.Outcomes["hit"] == 0 {
			t.Errorf("fixed: %+v", fixed)
		}
		for _, r := range runs {
			if r.Duration < 1 || r.Duration > 3.5 || r.Overhead > 0.5 {
				t.Errorf("%s: %.3f s, overhead %.3f s", r.Mode, r.Duration, r.Overhead)
			}
			checkLiveSpans(t, receiver, r)
			checkLiveMetrics(t, receiver, r)
			last := len(r.TraceIDs)
			if !strings.Contains(out.stderr, fmt.Sprintf("  round %d  http://127.0.0.1:16686/trace/%s\n", last, r.TraceIDs[last-1][0])) {
				t.Errorf("the last round of %s is not linked to:\n%s", r.Mode, out.stderr)
			}
		}
		equal(t, "received", len(receiver.Spans()), broken.Spans.Ended+fixed.Spans.Ended)
		checkPhasesDoNotMeet(t, receiver)
		for _, want := range []string{"phase 1, broken: ", "phase 2, fixed: ", "phase 3, broken: ", "summary of " + broken.ID + ", broken\n", "summary of " + broken.ID + ", fixed\n",
			"broken 1: ", "fixed 1: ", " of 20 workers in "} {
			if !strings.Contains(out.stderr, want) {
				t.Errorf("not printed: %q in:\n%s", want, out.stderr)
			}
		}
	})
}

func attribute(all []*commonpb.KeyValue, key string) *commonpb.AnyValue {
	for _, a := range all {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}

// checkLiveSpans checks that every request is a worker below a root of its mode, and that the counts agree.
func checkLiveSpans(t *testing.T, receiver *otlptest.Receiver, r facts.Run) {
	t.Helper()
	traces := map[string]int{}
	for i, ids := range r.TraceIDs {
		equal(t, "traces of a round", len(ids), 1)
		traces[ids[0]] = i + 1
	}
	equal(t, "traces", len(traces), r.Rounds)
	names, perTrace := map[string]int{}, map[string]int{}
	roots := map[string]string{} // span id -> trace id
	winners, rootCalls, rootExpiries := 0, int64(0), int64(0)
	for _, s := range receiver.Spans() {
		id := hex.EncodeToString(s.TraceId)
		round, ours := traces[id]
		if !ours {
			continue
		}
		names[s.Name]++
		perTrace[id]++
		equal(t, "run of the resource", s.Resource["cachelab.run"], r.ID)
		if attribute(s.Attributes, "winner").GetBoolValue() && s.Name == "worker" {
			winners++
		}
		if len(s.ParentSpanId) > 0 {
			continue
		}
		roots[hex.EncodeToString(s.SpanId)] = id
		equal(t, "root", s.Name, "round "+r.Mode)
		equal(t, "mode", attribute(s.Attributes, "mode").GetStringValue(), r.Mode)
		equal(t, "round", attribute(s.Attributes, "round").GetIntValue(), int64(round))
		rootCalls += attribute(s.Attributes, "backend_calls").GetIntValue()
		rootExpiries += attribute(s.Attributes, "expiries").GetIntValue()
		from, to := s.StartTimeUnixNano/1e6-5000, s.EndTimeUnixNano/1e6+5000
		page := attribute(s.Attributes, "dashboard").GetStringValue()
		var gotFrom, gotTo uint64
		if n, err := fmt.Sscanf(page, "http://grafana.example/d/thundering-herd?from=%d&to=%d&var-run="+r.ID, &gotFrom, &gotTo); n != 2 || err != nil {
			t.Errorf("dashboard %q: %v", page, err)
		}
		if gotFrom-from > 100 || to-gotTo > 100 {
			t.Errorf("dashboard %q of a round from %d to %d", page, from, to)
		}
	}
	equal(t, "roots", len(roots), r.Rounds)
	equal(t, "roots' calls", int(rootCalls), r.BackendCalls)
	equal(t, "roots' expiries", int(rootExpiries), r.Expiries)
	equal(t, "winners", winners, r.Lock.Acquired-r.Lock.Rechecked)
	equal(t, "dropped", r.Spans.Dropped, 0)
	equal(t, "exported", r.Spans.Exported, r.Spans.Ended)
	total := 0
	for id, n := range perTrace {
		total += n
		if n >= 2000 {
			t.Errorf("trace %s has %d spans", id, n)
		}
	}
	equal(t, "spans of the mode", total, r.Spans.Ended)
	equal(t, "workers", names["worker"], r.Requests)
	equal(t, "calls", names["backend call"], r.BackendCalls)
	equal(t, "Redis's GETs", r.RedisCommands.Get, names["GET"]+names["DEL"])
	equal(t, "Redis's SETs", r.RedisCommands.Set, names["SET"]+names["SET NX PX"])
	for _, s := range receiver.Spans() {
		if s.Name == "worker" && attribute(s.Attributes, "mode").GetStringValue() == r.Mode &&
			roots[hex.EncodeToString(s.ParentSpanId)] != hex.EncodeToString(s.TraceId) {
			t.Error("a worker that is not below a root of its mode")
		}
	}
}

// checkPhasesDoNotMeet checks that no requests of two modes were on their way at the same time, and that no push said so.
func checkPhasesDoNotMeet(t *testing.T, receiver *otlptest.Receiver) {
	t.Helper()
	workers := slices.DeleteFunc(receiver.Spans(), func(s otlptest.Span) bool { return s.Name != "worker" })
	slices.SortFunc(workers, func(a, b otlptest.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	changes, mode, lastEnd := 0, "broken", uint64(0)
	for _, s := range workers {
		if m := attribute(s.Attributes, "mode").GetStringValue(); m != mode {
			if s.StartTimeUnixNano < lastEnd {
				t.Errorf("a request of %s began while one of %s was on its way", m, mode)
			}
			mode = m
			changes++
		}
		lastEnd = max(lastEnd, s.EndTimeUnixNano)
	}
	equal(t, "changes of the mode", changes, 3)

	seen := map[string]bool{}
	latest := map[string]int{} // each mode pushes its own
	for i := range receiver.Pushes() {
		active := ""
		for _, mode := range []string{"broken", "fixed"} {
			if n, pushed := metricsOf(receiver, i, mode)["cachelab.run.active"]; pushed {
				latest[mode] = n
			}
			if latest[mode] == 1 {
				active += mode
			}
		}
		seen[active] = true
	}
	if seen["brokenfixed"] || !seen["broken"] && !seen["fixed"] || !seen[""] {
		t.Errorf("active modes: %v", seen)
	}
}

// metricsOf returns the counters and gauges of a mode in one push, by name and attributes.
func metricsOf(receiver *otlptest.Receiver, push int, mode string) map[string]int {
	got := map[string]int{}
	for _, rm := range receiver.Pushes()[push] {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				points := append([]*metricspb.NumberDataPoint(nil), m.GetSum().GetDataPoints()...)
				for _, p := range append(points, m.GetGauge().GetDataPoints()...) {
					if attribute(p.Attributes, "mode").GetStringValue() != mode {
						continue
					}
					name := m.Name
					for _, key := range []string{"result", "outcome", "command"} {
						if a := attribute(p.Attributes, key); a != nil {
							name += " " + a.GetStringValue()
						}
					}
					got[name] = int(p.GetAsInt())
				}
			}
		}
	}
	return got
}

// checkLiveMetrics checks that the last push has the ledger of the mode.
func checkLiveMetrics(t *testing.T, receiver *otlptest.Receiver, r facts.Run) {
	t.Helper()
	var got map[string]int
	for i := range receiver.Pushes() {
		if pushed := metricsOf(receiver, i, r.Mode); len(pushed) > 0 {
			got = pushed
		}
	}
	want := map[string]int{
		"cachelab.gets hit": r.Gets.Hit, "cachelab.gets miss": r.Gets.Miss,
		"cachelab.lock.attempts acquired": r.Lock.Acquired, "cachelab.lock.attempts held": r.Lock.Held,
		"cachelab.backend.calls": r.BackendCalls, "cachelab.backend.answers ok": r.BackendCalls, "cachelab.expiries": r.Expiries, "cachelab.rounds": r.Rounds,
		"cachelab.requests hit": r.Outcomes["hit"], "cachelab.requests waited": r.Outcomes["waited"], "cachelab.requests filled": r.Outcomes["filled"],
		"cachelab.redis.commands GET": r.Gets.Hit + r.Gets.Miss, "cachelab.redis.commands DEL": r.Lock.Acquired,
		"cachelab.spans exported": r.Spans.Exported, "cachelab.spans dropped": 0, "cachelab.workers": 20,
		"cachelab.backend.queued": 0, "cachelab.run.active": 0, "cachelab.run.verdict": 1,
	}
	for name, n := range want {
		if g, ok := got[name]; !ok || g != n {
			t.Errorf("%s, metric %s: got %d (%v), want %d", r.Mode, name, g, ok, n)
		}
	}
	if _, ok := got["cachelab.backend.in_flight.peak"]; !ok {
		t.Errorf("%s: no peak", r.Mode)
	}
}

func TestCtrlCIsTheProperEndOfLive(t *testing.T) {
	t.Parallel()
	receiver := otlptest.Start(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := make(chan time.Time, 1)
	go func() { // once a waiter of the second phase is seen
		for ctx.Err() == nil {
			for _, s := range receiver.Spans() {
				if s.Name == "wait for fill" {
					interrupted <- time.Now()
					cancel()
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	out := run(ctx, t, env, "live", "--redis", "embedded", "--json", "-", "--each", "1s", "--ttl", "300ms")
	if took := time.Since(<-interrupted); took > 3*time.Second {
		t.Errorf("took %v to end", took)
	}
	equal(t, "exit code", out.code, cli.ExitOK)
	runs := decodeAll(t, out.stdout)
	equal(t, "runs", len(runs), 2)
	for _, r := range runs {
		equal(t, r.Mode+"'s errors", r.Outcomes["error"], 0)
		equal(t, r.Mode+"'s error", r.Error, "")
		equal(t, r.Mode+"'s verdict", r.Verdict.OK, true)
		equal(t, r.Mode+"'s locks", r.Lock.Released, r.Lock.Acquired)
		equal(t, r.Mode+"'s spans", r.Spans.Exported, r.Spans.Ended)
	}
	if strings.Contains(out.stderr, "ended early") {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

func TestLiveInOneModeHasNoPhases(t *testing.T) {
	t.Parallel()
	for mode, invariant := range map[string]bool{"broken": false, "fixed": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out := run(t.Context(), t, nil, "live", "--mode", mode, "--redis", "embedded", "--json", "-", "--each", "500ms", "--for", "2s",
				"--ttl", "300ms", "--quiet=false")
			equal(t, "exit code", out.code, cli.ExitOK)
			runs := decodeAll(t, out.stdout)
			equal(t, "runs", len(runs), 1)
			equal(t, "mode", runs[0].Mode, mode)
			equal(t, "invariant", runs[0].Verdict.Invariant, invariant)
			equal(t, "phases", strings.Count(out.stderr, "\nphase "), 1)
			told := strings.Count(out.stderr, " GET HIT\n") + strings.Count(out.stderr, " GET HIT after ") + strings.Count(out.stderr, " GET HIT on the re-check\n")
			equal(t, "hits told", told, runs[0].Gets.Hit)
		})
	}
}

func TestTracesOfALargeLiveRunStaySmall(t *testing.T) {
	t.Parallel()
	receiver := otlptest.Start(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	out := run(t.Context(), t, env, "live", "--mode", "fixed", "--redis", "embedded", "--json", "-", "--workers", "120", "--think", "100ms",
		"--ttl", "3s", "--for", "2500ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decodeAll(t, out.stdout)[0]
	checkFixed(t, r, 1)
	if r.Rounds < 2 {
		t.Errorf("%d rounds of %d requests in one cycle", r.Rounds, r.Requests)
	}
	for i, ids := range r.TraceIDs {
		equal(t, fmt.Sprint("slices of round ", i+1), len(ids), 3)
	}
	equal(t, "received", len(receiver.Spans()), r.Spans.Ended)
	perTrace := map[string]int{}
	for _, s := range receiver.Spans() {
		perTrace[string(s.TraceId)]++
	}
	equal(t, "traces", len(perTrace), 3*r.Rounds)
	for _, n := range perTrace {
		if n >= 2000 {
			t.Errorf("a trace has %d spans", n)
		}
	}
}

func TestFaultsOfLive(t *testing.T) {
	out := run(t.Context(), t, nil, "live", "--mode", "load", "--each", "30", "--for", "1ms", "--think", "1ms", "--rate", "0")
	equal(t, "exit code", out.code, cli.ExitUsage)
	for _, want := range []string{`--mode "load": there is no mode "load": want broken, fixed, coalesced, woken, early or stale`, `--each "30": want a duration`, `--for "1ms": want a duration`,
		`--think "1ms": want a duration with its unit, like 250ms or 3s, of at least 10ms`,
		`--rate "0": want a number of requests a second, more than 0 and at most 10000`} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("not said: %s\nbut:\n%s", want, out.stderr)
		}
	}
	out = run(t.Context(), t, nil, "live", "--rounds", "3")
	equal(t, "exit code", out.code, cli.ExitUsage)
	out = run(t.Context(), t, nil, "live", "--redis", "embedded", "--for", "100ms", "--each", "3s")
	if !strings.Contains(out.stdout, "warning: a phase (3s) is not longer than the TTL (3s)") {
		t.Errorf("no warning:\n%s", out.stdout)
	}
}
