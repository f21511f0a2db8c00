// Package factstest has two runs made by hand, for tests: 20 workers without protection, and with a fill lock.
package factstest

import (
	"fmt"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

const ms = time.Millisecond

// Began is when the recorded rounds Began.
var Began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// Spans makes a recording by hand.
type Spans struct{ telemetry.Recording }

// Add adds a span from one time of the round to another, and returns its id.
func (s *Spans) Add(parent, name string, from, to time.Duration, attributes map[string]any, links ...string) string {
	id := fmt.Sprintf("%d %s", len(s.Spans), name)
	s.Spans = append(s.Spans, telemetry.Span{ID: id, Parent: parent, Name: name, Start: Began.Add(from), End: Began.Add(to), Attributes: attributes, Links: links})
	return id
}

// Root ends the round.
func (s *Spans) Root(calls int) {
	s.Spans = append(s.Spans, telemetry.Span{ID: "root", Name: "round", Start: Began, End: Began.Add(2 * time.Second),
		Attributes: map[string]any{"backend_calls": int64(calls)}})
}

// Worker adds a worker's span.
func (s *Spans) Worker(number int, outcome string, answer time.Duration) string {
	return s.Add("root", "worker", 0, answer, map[string]any{"number": int64(number), "outcome": outcome})
}

// BrokenRound is 20 workers on a backend that answers 5 at once after 250 ms.
func BrokenRound() telemetry.Recording {
	s := Spans{telemetry.Recording{Round: 1, Workers: 20}}
	for n := range 20 {
		queued := time.Duration(n/5) * 250 * ms
		answer := queued + 252*ms + time.Duration(n)*ms
		w := s.Worker(n+1, "filled", answer)
		s.Add(w, "GET", 0, ms, map[string]any{"cache.hit": false})
		miss := s.Add(w, "MISS", ms, answer, nil)
		s.Add(miss, "backend call", ms, answer-ms, map[string]any{"queued_ms": float64(queued / ms)})
		s.Add(miss, "SET", answer-ms, answer, map[string]any{"ended_cycle": n == 0})
	}
	s.Root(20)
	return s.Recording
}

// FixedRound is 20 workers, of whom number 7 wins. Number 9 gets the lock late and finds the value by the re-check;
// number 20 waits for somebody in another process.
func FixedRound() telemetry.Recording {
	s := Spans{telemetry.Recording{Round: 1, Workers: 20}}
	w := s.Worker(7, "filled", 255*ms)
	won := s.Add(w, "MISS", ms, 255*ms, nil)
	s.Add(w, "GET", 0, ms, map[string]any{"cache.hit": false})
	s.Add(won, "SET NX PX", ms, 2*ms, map[string]any{"lock.acquired": true})
	s.Add(won, "GET", 2*ms, 3*ms, map[string]any{"cache.hit": false, "recheck": true})
	s.Add(won, "backend call", 3*ms, 253*ms, map[string]any{"queued_ms": 0.0})
	s.Add(won, "SET", 253*ms, 254*ms, map[string]any{"ended_cycle": true})
	s.Add(won, "DEL", 254*ms, 255*ms, map[string]any{"lock.released": true})
	for n := 1; n <= 20; n++ {
		if n == 7 {
			continue
		}
		answer := 255*ms + time.Duration(n)*2*ms
		w := s.Worker(n, "waited", answer)
		s.Add(w, "GET", 0, ms, map[string]any{"cache.hit": false})
		miss := s.Add(w, "MISS", ms, answer, nil)
		s.Add(miss, "SET NX PX", ms, 2*ms, map[string]any{"lock.acquired": false})
		link := won
		if n == 20 {
			link = "elsewhere"
		}
		end := answer
		if n == 9 {
			end -= 3 * ms
			s.Add(miss, "SET NX PX", end, end+ms, map[string]any{"lock.acquired": true})
			s.Add(miss, "GET", end+ms, end+2*ms, map[string]any{"cache.hit": true, "recheck": true})
			s.Add(miss, "DEL", end+2*ms, end+3*ms, map[string]any{"lock.released": true})
		}
		wait := s.Add(miss, "wait for fill", 2*ms, end, map[string]any{"polls": int64(5)}, link)
		for poll := range 5 {
			at := time.Duration(20+50*poll) * ms
			if poll == 4 {
				at = end - ms
			}
			s.Add(wait, "GET", at, at+ms, map[string]any{"cache.hit": poll == 4})
		}
	}
	s.Root(1)
	return s.Recording
}

// BrokenRun is a run of one such round without protection.
func BrokenRun() facts.Run {
	l := herd.Ledger{Workers: 20, Rounds: 1, Sum: herd.Sum{Requests: 20, Outcomes: map[cache.Outcome]int{cache.Filled: 20},
		Counts: cache.Counts{Misses: 20, BackendCalls: 20, SetsAbsent: 1, SetsReplaced: 19}, Expiries: 1, Redundant: 19},
		Latency: herd.Quantiles{P50: 511 * ms, P95: 1020 * ms, P99: 1021 * ms, Max: 1021 * ms}}
	r := facts.NewRun(l, facts.Details{ID: "broken-1", Mode: "broken", Redis: "embedded", BackendPeak: 20,
		RedisCommands: facts.RedisCommands{Commands: redisstore.Commands{Get: 20, Set: 20}, Standing: redisstore.Exact},
		Verdict:       herd.JudgeHerd(l), Waterfall: facts.NewWaterfall(BrokenRound()), Started: Began, Duration: 1100 * ms})
	for n := range 20 {
		r.Latencies = append(r.Latencies, time.Duration(n/5)*250*ms+252*ms+time.Duration(n)*ms)
	}
	return r
}

// FixedRun is a run of one such round with the fill lock.
func FixedRun() facts.Run {
	l := herd.Ledger{Workers: 20, Rounds: 1, Sum: herd.Sum{Requests: 20, Outcomes: map[cache.Outcome]int{cache.Filled: 1, cache.Waited: 19},
		Counts: cache.Counts{Hits: 20, Misses: 97, Polls: 95, Acquired: 2, Held: 19, Rechecked: 1, Released: 2,
			BackendCalls: 1, SetsAbsent: 1}, Expiries: 1},
		Latency: herd.Quantiles{P50: 275 * ms, P95: 293 * ms, P99: 295 * ms, Max: 295 * ms},
		Age:     herd.Quantiles{P50: 23 * ms, P95: 41 * ms, P99: 43 * ms, Max: 43 * ms},
		WakeLag: herd.Quantiles{P50: 22 * ms, P95: 40 * ms, P99: 42 * ms, Max: 42 * ms}}
	r := facts.NewRun(l, facts.Details{ID: "fixed-1", Mode: "fixed", Redis: "embedded", BackendPeak: 1,
		RedisCommands: facts.RedisCommands{Standing: redisstore.NotAvailable},
		Spans:         telemetry.SpanCounts{Ended: 300, Exported: 300}, TraceIDs: [][]string{{"4bf92f"}},
		Verdict: herd.JudgeSingleFill(l), Waterfall: facts.NewWaterfall(FixedRound()), Started: Began, Duration: 400 * ms})
	for n := range 20 {
		r.Latencies = append(r.Latencies, 255*ms+time.Duration(n)*2*ms)
	}
	return r
}
