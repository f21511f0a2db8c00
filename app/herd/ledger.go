package herd

import (
	"errors"
	"math"
	"slices"
	"time"

	"cachelab/app/cache"
)

// Ledger is what the run counted: the one source of every number that is shown.
type Ledger struct {
	Workers  int
	Rounds   int            // rounds that took place
	ByRound  []RoundSummary // in their order
	Requests int
	cache.Counts
	Expiries int // expiry cycles that ended: each with a SET that found the key absent
	Sent     cache.Sent
	Missed   int // requests whose first GET found nothing
	Waiters  int // requests that waited for a fill
	Outcomes map[cache.Outcome]int
	// Redundant and Repeated are the backend calls that the cache should have spared, as the backend counted them for each
	// key: begun while another was in flight, or soon after an answer. Who knows the backend sets them.
	Redundant, Repeated int
	// Errors are the first ones of each kind of step. OtherError is the first of a request that failed for another reason.
	Errors     cache.Errors
	OtherError error

	Latency Quantiles // of requests, from the barrier's release to the answer
	WakeLag Quantiles // of waiters: they have the value, minus the winner's backend call returned

	InRounds time.Duration // spent in rounds
	Expiring time.Duration // spent waiting for the key's expiry

	latencies, wakeLags []time.Duration
}

// RoundSummary is the ledger's account of one round.
type RoundSummary struct {
	Round
	cache.Counts
	Expiries int // as the ledger's
	Outcomes map[cache.Outcome]int
	Elapsed  time.Duration // from the barrier's release to the last answer
	// Winners are the workers that called the backend and got an answer, in the order of the answers.
	Winners []Worker
	wakeLag []time.Duration
}

// Quantiles of a set of durations; zero for an empty set.
type Quantiles struct{ P50, P95, P99, Max time.Duration }

// CallsPerExpiry is the invariant's number: 1 when every expiry cycle cost one backend call. It is 0 when
// there was no cycle.
func CallsPerExpiry(backendCalls, expiries int) float64 {
	if expiries == 0 {
		return 0
	}
	return float64(backendCalls) / float64(expiries)
}

// Latencies returns the latency of each request in ascending order. The slice is the ledger's own: only read it.
func (l *Ledger) Latencies() []time.Duration { return l.latencies }

func newLedger(workers int) Ledger {
	return Ledger{Workers: workers, Outcomes: map[cache.Outcome]int{}}
}

func (l *Ledger) add(responses []Response, round RoundSummary) {
	l.Rounds++
	l.ByRound = append(l.ByRound, round)
	l.Requests += len(responses)
	l.Counts.Add(round.Counts)
	l.Expiries += round.Expiries
	for outcome, n := range round.Outcomes {
		l.Outcomes[outcome] += n
	}
	for _, r := range responses {
		l.latencies = append(l.latencies, r.Elapsed)
		l.Sent.Add(r.Sent)
		if r.Misses > 0 {
			l.Missed++
		}
		if r.Waited > 0 {
			l.Waiters++
		}
		l.Errors = l.Errors.Or(r.Errors)
		if l.OtherError == nil && r.Err != nil && !isOne(r.Errors.All(), r.Err) {
			l.OtherError = r.Err
		}
	}
	l.wakeLags = append(l.wakeLags, round.wakeLag...)
	l.InRounds += round.Elapsed
}

// FirstErrors returns the first error of each kind.
func (l *Ledger) FirstErrors() []error {
	all := l.Errors.All()
	if l.OtherError != nil {
		all = append(all, l.OtherError)
	}
	return all
}

func isOne(of []error, err error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}

func (l *Ledger) close() {
	l.Latency = quantiles(l.latencies)
	l.WakeLag = quantiles(l.wakeLags)
}

func summarize(round Round, responses []Response, elapsed time.Duration) RoundSummary {
	s := RoundSummary{Round: round, Outcomes: map[cache.Outcome]int{}, Elapsed: elapsed}
	winners := slices.DeleteFunc(slices.Clone(responses), func(r Response) bool { return r.Loaded.IsZero() })
	slices.SortFunc(winners, func(a, b Response) int { return a.Loaded.Compare(b.Loaded) })
	for _, w := range winners {
		s.Winners = append(s.Winners, w.Worker)
	}
	for _, r := range responses {
		s.Counts.Add(r.Counts)
		s.Expiries += r.SetsAbsent
		s.Outcomes[r.Outcome]++
		if r.Outcome != cache.Waited {
			continue
		}
		// The fill that woke this waiter is the latest one before its answer.
		for _, w := range slices.Backward(winners) {
			if w.Loaded.Before(r.At) {
				s.wakeLag = append(s.wakeLag, r.At.Sub(w.Loaded))
				break
			}
		}
	}
	return s
}

// quantiles sorts d and takes the nearest ranks: exact values, no interpolation.
func quantiles(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	slices.Sort(d)
	rank := func(q float64) time.Duration { return d[int(math.Ceil(q*float64(len(d))))-1] }
	return Quantiles{P50: rank(0.50), P95: rank(0.95), P99: rank(0.99), Max: d[len(d)-1]}
}
