package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/record"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// story is a run of fixed as all who know of it tell it: 10 workers, 1 round, 1 winner, 9 waiters, 20 polls.
type story struct {
	record.Record
	spans   spanFacts
	metrics metrics
}

func agreed() *story {
	s := &story{Record: record.Record{
		Run: facts.Run{
			ID: "fixed-1", Mode: "fixed", Workers: 10, Rounds: 1, Requests: 10, Gets: facts.Gets{Hit: 9, Miss: 22}, Polls: 20,
			Lock:         facts.Lock{Acquired: 1, Held: 9, Released: 1},
			BackendCalls: 1, Expiries: 1, Outcomes: map[cache.Outcome]int{cache.Filled: 1, cache.Waited: 9},
			Latency:       facts.Milliseconds{P99: 251.5, Max: 252.25},
			RedisCommands: facts.RedisCommands{Commands: redisstore.Commands{Get: 32, Set: 11, Eval: 1, Del: 1}, Standing: redisstore.Exact},
			Spans:         telemetry.SpanCounts{Ended: 75, Exported: 75}, TraceIDs: [][]string{{"a"}},
			Verdict: herd.Verdict{OK: true},
		},
		Sent: cache.Sent{Get: 31, Set: 1, Lock: 10, Unlock: 1}, Missed: 10, Waiters: 9, Links: 9, Served: 1,
	}}
	s.spans = spanFacts{
		total: 75, links: 9, served: 1, hits: 9, misses: 22, polls: 20, acquired: 1, held: 9, released: 1, ended: 1,
		named: map[string]int{"round fixed": 1, "worker": 10, "GET": 31, "MISS": 10, "wait for fill": 9, "SET NX PX": 10, "SET": 1, "DEL": 1,
			"backend call": 1},
		outcome: map[string]int{"filled": 1, "waited": 9},
	}
	add := func(value float64, name string, labels ...string) {
		sample := sample{map[string]string{"__name__": "cachelab_" + name}, value}
		for _, l := range labels {
			key, value, _ := strings.Cut(l, "=")
			sample.labels[key] = value
		}
		s.metrics = append(s.metrics, sample)
	}
	for outcome, n := range map[string]float64{"hit": 0, "filled": 1, "waited": 9, "error": 0} {
		add(n, "requests_total", "outcome="+outcome)
	}
	for command, n := range map[string]float64{"GET": 31, "SET NX PX": 10, "SET": 1, "DEL": 1, "SET, DEL": 0, "PUBLISH": 0} {
		add(n, "redis_commands_total", "command="+command)
	}
	add(1, "rounds_total")
	add(1, "request_duration_seconds_count", "outcome=filled")
	add(9, "request_duration_seconds_count", "outcome=waited")
	add(9, "wait_duration_seconds_count")
	add(9, "gets_total", "result=hit")
	add(22, "gets_total", "result=miss")
	add(20, "polls_total")
	add(10, "misses_total")
	add(1, "lock_attempts_total", "result=acquired")
	add(9, "lock_attempts_total", "result=held")
	add(0, "lock_rechecks_total")
	add(1, "lock_releases_total", "result=released")
	add(0, "lock_releases_total", "result=lost")
	add(0, "lock_releases_total", "result=error")
	add(0, "lock_timeouts_total")
	add(0, "wakes_total", "by=message")
	add(0, "wakes_total", "by=look")
	add(0, "wakes_total", "by=reconnect")
	add(1, "backend_calls_total")
	add(1, "backend_answers_total", "result=ok")
	add(0, "backend_answers_total", "result=error")
	add(0, "backend_answers_total", "result=unknown")
	add(0, "backend_redundant_total")
	add(0, "backend_repeated_total")
	add(1, "expiries_total")
	add(75, "spans_total", "result=exported")
	add(0, "spans_total", "result=dropped")
	add(0.2515, "run_latency_seconds", "quantile=p99")
	add(0.25225, "run_latency_seconds", "quantile=max")
	add(1, "run_verdict")
	return s
}

// change adds to the samples of a metric with a label's value.
func (s *story) change(by float64, metric, value string) {
	for i, m := range s.metrics {
		if m.labels["__name__"] == "cachelab_"+metric && (value == "" || slices.Contains(slices.Collect(maps.Values(m.labels)), value)) {
			s.metrics[i].value += by
			return
		}
	}
	panic("no sample of " + metric + " " + value)
}

func (s *story) result() Result {
	return Result{Record: s.Record, Rows: rows(s.Record, s.spans, s.metrics), Missing: forgotten(s.Record, s.spans)}
}

// in lists the rows in a state.
func (r Result) facts(state State) (all []string) {
	for _, row := range r.Rows {
		if row.State == state {
			all = append(all, row.Fact)
		}
	}
	return all
}

var (
	redisRows  = []string{"GET", "SET, DEL (EVAL)", "SET and SET NX PX", "DEL (EVAL)", "DEL: released", "PUBLISH"}
	jaegerRows = []string{"round spans (one a slice)", "worker spans, requests", "requests: hit", "requests: filled", "requests: waited",
		"requests: error", "GET", "GET: hit", "GET: miss", "polls", "MISS", "wait for fill", "links", "SET NX PX", "SET NX PX: acquired",
		"SET NX PX: held", "re-checks that hit", "SET", "SET, DEL (EVAL)", "SET and SET NX PX", "DEL (EVAL)", "DEL: released", "DEL: lost", "PUBLISH", "wakes by message", "wakes by look", "wakes by reconnect", "backend calls",
		"backend calls: failed", "price-service: GET /price", "backend calls: redundant", "backend calls: repeated", "expiries"}
)

func TestRows(t *testing.T) {
	const claim = "1 backend call / 1 expiry = 1.0: "
	for name, test := range map[string]struct {
		change                        func(*story)
		differs, shared, notAvailable []string
		says                          string // if no row differs
	}{
		"all agree":               {says: "the app, Redis, Jaeger and Prometheus agree"},
		"a span more":             {change: func(s *story) { s.spans.named["backend call"]++ }, differs: []string{"backend calls"}},
		"a call less at its end":  {change: func(s *story) { s.spans.served-- }, differs: []string{"price-service: GET /price"}},
		"Jaeger holds one more":   {change: func(s *story) { s.spans.total++ }, differs: []string{"spans exported"}},
		"Jaeger holds one less":   {change: func(s *story) { s.spans.total-- }, differs: []string{"spans exported"}},
		"a poll less in a graph":  {change: func(s *story) { s.change(-1, "polls_total", "") }, differs: []string{"polls"}},
		"a reply less in a graph": {change: func(s *story) { s.change(-1, "gets_total", "miss") }, differs: []string{"GET: miss"}},
		"an answer lost":          {change: func(s *story) { s.change(-1, "backend_answers_total", "ok") }, differs: []string{"backend calls: answered"}},
		"a call that nobody waited for": {change: func(s *story) {
			s.Run.BackendCalls, s.Run.BackendErrors = 2, 1
			s.spans.named["backend call"], s.spans.failedCalls = 2, 1
			s.change(1, "backend_calls_total", "")
			s.change(1, "backend_answers_total", "unknown")
		}, says: "2 backend calls / 1 expiry = 2.0: the app, Redis, Jaeger and Prometheus agree"},
		"a redundant call that only the backend saw": {change: func(s *story) { s.Run.Redundant = 1 }, differs: []string{"backend calls: redundant"}},
		"a SET more in Redis":                        {change: func(s *story) { s.Run.RedisCommands.Set++ }, differs: []string{"SET and SET NX PX"}},
		"no sample of a metric": {change: func(s *story) {
			s.metrics = slices.DeleteFunc(s.metrics, func(m sample) bool { return m.labels["__name__"] == "cachelab_rounds_total" })
		}, differs: []string{"rounds"}},
		"the latency is another": {change: func(s *story) { s.change(0.001, "run_latency_seconds", "p99") }, differs: []string{"latency p99, us"}},
		"the verdict is another": {change: func(s *story) { s.change(-1, "run_verdict", "") }, differs: []string{"verdict ok"}},

		"another client": {change: func(s *story) { s.Run.RedisCommands.Standing, s.Run.RedisCommands.Get = redisstore.Shared, 99 }, shared: redisRows,
			says: "the app, Jaeger and Prometheus agree; Redis's own counts are shared"},
		"another client, and a difference": {change: func(s *story) { s.Run.RedisCommands.Standing = redisstore.Shared; s.spans.named["GET"]++ },
			differs: []string{"GET"}, shared: redisRows[1:]},
		"Redis does not tell": {change: func(s *story) { s.Run.RedisCommands = facts.RedisCommands{Standing: redisstore.NotAvailable} },
			notAvailable: redisRows, says: "the app, Jaeger and Prometheus agree; Redis's own counts are not available"},
		"a command failed": {change: func(s *story) { s.Run.StoreErrors = 1; s.Run.RedisCommands.Get-- }, notAvailable: redisRows,
			says: "the app, Jaeger and Prometheus agree; Redis's own counts are no check where commands failed"},

		"Jaeger has forgotten": {change: func(s *story) { s.spans = spanFacts{missing: []string{"a"}} }, notAvailable: append(jaegerRows, "spans exported"),
			says: "the app, Redis and Prometheus agree; Jaeger has forgotten traces of this run"},
		"all were dropped but some": {change: func(s *story) {
			s.Run.Spans = telemetry.SpanCounts{Ended: 75, Exported: 5, Dropped: 70}
			s.change(-70, "spans_total", "exported")
			s.change(70, "spans_total", "dropped")
			s.spans = spanFacts{total: 5, missing: []string{"a"}}
		}, notAvailable: jaegerRows, says: "the app, Redis and Prometheus agree; 70 spans were dropped on their way to Jaeger"},
		"dropped, it was thought": {change: func(s *story) {
			s.Run.Spans = telemetry.SpanCounts{Ended: 75, Exported: 5, Dropped: 70}
			s.change(-70, "spans_total", "exported")
			s.change(70, "spans_total", "dropped")
		}, notAvailable: jaegerRows, says: "the app, Redis and Prometheus agree; 70 spans were dropped on their way to Jaeger"},
		"dropped, and forgotten": {change: func(s *story) {
			s.Run.Spans = telemetry.SpanCounts{Ended: 75, Exported: 70, Dropped: 5}
			s.change(-5, "spans_total", "exported")
			s.change(5, "spans_total", "dropped")
			s.spans = spanFacts{total: 30, missing: []string{"a"}}
		}, notAvailable: append(jaegerRows, "spans exported"),
			says: "the app, Redis and Prometheus agree; 5 spans were dropped on their way to Jaeger; Jaeger has forgotten traces of this run"},
		"dropped, and others lost": {change: func(s *story) {
			s.Run.Spans = telemetry.SpanCounts{Ended: 75, Exported: 70, Dropped: 5}
			s.change(-5, "spans_total", "exported")
			s.change(5, "spans_total", "dropped")
			s.spans = spanFacts{total: 69}
		}, notAvailable: jaegerRows, differs: []string{"spans exported"}},
		"sampled": {change: func(s *story) {
			s.Unsampled, s.Run.Spans = 3, telemetry.SpanCounts{Ended: 5, Exported: 5}
			s.change(-70, "spans_total", "exported")
			s.spans = spanFacts{total: 5}
		}, notAvailable: jaegerRows, says: "the app, Redis and Prometheus agree; the sampler left out 3 traces"},
		"a drill masks re-checks": {change: func(s *story) { // Redis said hit, twice; the strategy was told of a miss
			s.Masked = 2
			s.spans.hits, s.spans.misses, s.spans.rechecks = 11, 20, 2
		}, says: "the app, Redis, Jaeger and Prometheus agree"},
	} {
		t.Run(name, func(t *testing.T) {
			s := agreed()
			if test.change != nil {
				test.change(s)
			}
			r := s.result()
			for state, want := range map[State][]string{Differs: test.differs, Shared: test.shared, NotAvailable: test.notAvailable} {
				if got := r.facts(state); !equalSets(got, want) {
					t.Errorf("%s: %q, want %q", state, got, want)
				}
			}
			want := test.says
			if want == "" {
				want = fmt.Sprintf("%d of %d rows differ", len(test.differs), len(r.Rows))
			}
			if !strings.Contains(want, " backend calls / ") {
				want = claim + want
			}
			if got := r.Sentence(); got != want {
				t.Errorf("it says %q, want %q", got, want)
			}
		})
	}
}

func equalSets(a, b []string) bool {
	sorted := func(s []string) string { return fmt.Sprint(slices.Sorted(slices.Values(s))) }
	return sorted(a) == sorted(b)
}

// What a process that was killed alone knew is compared with nothing; what its coordinator knows is.
func TestWhatALostProcessKnewIsNotAvailable(t *testing.T) {
	s := agreed()
	s.Run.Processes = []facts.Process{{Number: 1}, {Number: 2, Lost: "killed"}}
	s.spans.named["GET"], s.spans.named["round fixed"] = 7, 2
	result := Result{Record: s.Record, Rows: rows(s.Record, s.spans, s.metrics)}
	states := map[string]State{}
	for _, row := range result.Rows {
		states[row.Fact] = row.State
	}
	for fact, want := range map[string]State{"rounds": Equal, "round spans (one a slice)": Differs, "verdict ok": Equal, "GET": NotAvailable, "backend calls": NotAvailable,
		"spans exported": NotAvailable} {
		if states[fact] != want {
			t.Errorf("%s: %q, want %q", fact, states[fact], want)
		}
	}
	s.spans.named["round fixed"] = 1
	result.Rows = rows(s.Record, s.spans, s.metrics)
	if want := "a process was lost, and what it alone knew is not available"; result.Differing() != 0 || !strings.Contains(result.Sentence(), want) {
		t.Errorf("%d differ; %s", result.Differing(), result.Sentence())
	}
}
