package herd

import (
	"math"
	"slices"
	"time"

	"cachelab/app/cache"
)

// Ledger is what the run counted: the one source of every number that is shown. A [Fold] makes it.
type Ledger struct {
	Workers   int            // of all processes
	Processes int            // that took part; 0 if it is not known
	Rounds    int            // rounds that took place
	ByRound   []RoundSummary // in their order
	Sum
	// Errors are the first ones of each kind of step. OtherError is the first of a request that failed for another reason.
	Errors     cache.Errors
	OtherError error

	NotSent int // requests of open traffic that were due while too many were on their way

	Latency Quantiles // of requests, from the barrier's release to the answer; in open traffic, from when they were due
	WakeLag Quantiles // of waiters: they have the value, minus the winner's backend call returned
	Age     Quantiles // of the values that were served, since the backend answered; of those that this run's backend made
	Overdue Quantiles // of the same values: how much of their age is beyond the TTL

	// Elsewhere says that some of it was on other machines: wake lag, age and overdue are not known then, and the spread is that of
	// this machine.
	Elsewhere bool
	// Spread is how much later the last process of a round was released than the first, by the clock of this machine.
	Spread Quantiles

	InRounds time.Duration // spent in rounds
	Expiring time.Duration // spent waiting for the key's expiry

	latencies []time.Duration
}

// RoundSummary is the ledger's account of one round.
type RoundSummary struct {
	Round
	Sum
	Elapsed time.Duration // from the barrier's release to the last answer
}

// Ledger returns the ledger of a run that had this round alone. It has no times and no errors.
func (s RoundSummary) Ledger() Ledger {
	return Ledger{Workers: s.Workers, Processes: s.Processes, Rounds: 1, ByRound: []RoundSummary{s}, Sum: s.Sum}
}

// Sum is what responses add up to.
type Sum struct {
	Requests int
	cache.Counts
	Expiries int // expiry cycles that ended: each with a SET that found the key absent
	// Redundant and Repeated are the backend calls that the cache should have spared: see [CountCall].
	Redundant, Repeated int
	Sent                cache.Sent
	Missed              int // requests whose first GET found nothing
	Waiters             int // requests that waited for a fill
	Outcomes            map[cache.Outcome]int
	Works               int // flights and refreshes: see [Response.Work]
}

func (s *Sum) add(r Response) {
	one := Sum{Counts: r.Counts, Expiries: r.SetsAbsent, Redundant: r.Redundant, Repeated: r.Repeated, Sent: r.Sent}
	if r.Work == "" {
		one.Requests = 1
		one.Outcomes = map[cache.Outcome]int{r.Outcome: 1}
	} else {
		one.Works = 1
	}
	if r.Misses > r.Expired {
		one.Missed = 1
	}
	if r.Waited > 0 {
		one.Waiters = 1
	}
	s.Add(one)
}

// Add adds d to s.
func (s *Sum) Add(d Sum) {
	s.Requests += d.Requests
	s.Counts.Add(d.Counts)
	s.Expiries += d.Expiries
	s.Redundant += d.Redundant
	s.Repeated += d.Repeated
	s.Sent.Add(d.Sent)
	s.Missed += d.Missed
	s.Waiters += d.Waiters
	s.Works += d.Works
	for outcome, n := range d.Outcomes {
		s.outcome(outcome, n)
	}
}

func (s *Sum) outcome(o cache.Outcome, n int) {
	if s.Outcomes == nil {
		s.Outcomes = map[cache.Outcome]int{}
	}
	s.Outcomes[o] += n
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

// FirstErrors returns the first error of each kind.
func (l *Ledger) FirstErrors() []error {
	all := l.Errors.All()
	if l.OtherError != nil {
		all = append(all, l.OtherError)
	}
	return all
}

// ages keeps ages in whole microseconds, which is what is shown: most in 4 bytes, as a live run has many.
type ages struct {
	young []uint32
	old   []time.Duration // of more than an hour
}

func (a *ages) add(age time.Duration) {
	if age.Microseconds() <= math.MaxUint32 {
		a.young = append(a.young, uint32(max(0, age.Microseconds())))
	} else {
		a.old = append(a.old, age.Truncate(time.Microsecond))
	}
}

func (a *ages) join(more ages) {
	a.young = append(a.young, more.young...)
	a.old = append(a.old, more.old...)
}

func (a *ages) all() []time.Duration {
	all := slices.Clone(a.old)
	for _, age := range a.young {
		all = append(all, time.Duration(age)*time.Microsecond)
	}
	return all
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

// beyond are the quantiles of how much of each is beyond the limit. They are exact: what is longer is further beyond it.
func (q Quantiles) beyond(limit time.Duration) Quantiles {
	over := func(d time.Duration) time.Duration { return max(0, d-limit) }
	return Quantiles{P50: over(q.P50), P95: over(q.P95), P99: over(q.P99), Max: over(q.Max)}
}
