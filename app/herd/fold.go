package herd

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"cachelab/app/cache"
)

// Fold adds responses up to a ledger. The ledger is the same in whatever order they come, and however those of several
// processes are split: they have one fold, or each has its own, and those are joined.
type Fold struct {
	workers int
	ttl     time.Duration
	rounds  map[int]*roundFold
	first   firstErrors

	latencies, wakeLags []time.Duration
	ages                ages
	elsewhere           bool       // some of it: what times tell across processes is not known
	across              *roundFold // see Across; nil otherwise
}

// roundFold is a round so far.
type roundFold struct {
	RoundSummary

	// Only the responses of one machine can be held against each other, by its clock, and only when all are there. After that
	// they are forgotten.
	began, ended time.Time
	loaded       []time.Time // when backend calls returned a value
	waited       []time.Time // when waiters had theirs
}

// NewFold returns a fold for a run of that many workers on a key with that TTL.
func NewFold(workers int, ttl time.Duration) *Fold {
	return &Fold{workers: workers, ttl: ttl, rounds: map[int]*roundFold{}}
}

// Across says that the rounds are of several processes, each of which has its own: who waits in one may be woken by a fill in another.
// It returns the fold, to which nothing was added yet.
func (f *Fold) Across() *Fold {
	f.across = &roundFold{}
	return f
}

// waking is where the fills and waits of a round are kept.
func (f *Fold) waking(round *roundFold) *roundFold {
	if f.across != nil {
		return f.across
	}
	return round
}

// Add adds a response.
func (f *Fold) Add(r Response) {
	if r.Work == "" {
		f.latencies = append(f.latencies, r.Elapsed)
	}
	f.first.add(r)

	round := f.round(r.Worker.Round)
	round.Sum.add(r)
	if r.Elsewhere {
		f.elsewhere = true
		round.Elapsed = max(round.Elapsed, r.Elapsed)
		return
	}
	if age, known := r.Age(); known {
		f.ages.add(age)
	}
	if began := r.At.Add(-r.Elapsed); round.began.IsZero() || began.Before(round.began) {
		round.began = began
	}
	if r.At.After(round.ended) {
		round.ended = r.At
	}
	waking := f.waking(round)
	if !r.Loaded.IsZero() {
		waking.loaded = append(waking.loaded, r.Loaded)
	}
	if r.Outcome == cache.Waited && r.Work == "" {
		waking.waited = append(waking.waited, r.At)
	}
}

// Close says that all responses of round n are there, and returns what they come to.
func (f *Fold) Close(n int) RoundSummary {
	round := f.round(n)
	round.Elapsed = max(round.Elapsed, round.ended.Sub(round.began))
	round.began, round.ended = time.Time{}, time.Time{}
	f.wake(round)
	return round.RoundSummary
}

// wake tells how long after the fills those who waited for them had their answers.
func (f *Fold) wake(round *roundFold) {
	slices.SortFunc(round.loaded, time.Time.Compare)
	for _, at := range round.waited {
		// The fill that woke this waiter is the latest one before its answer.
		if i, _ := slices.BinarySearchFunc(round.loaded, at, time.Time.Compare); i > 0 {
			f.wakeLags = append(f.wakeLags, at.Sub(round.loaded[i-1]))
		}
	}
	round.loaded, round.waited = nil, nil
}

// Join adds the responses of another process of the machine, whose times are later than those of this fold by as much as its
// clock began later. Its fold must not be used any more.
func (f *Fold) Join(other *Fold, later time.Duration) {
	for n, theirs := range other.rounds {
		ours := f.round(n)
		ours.Sum.Add(theirs.Sum)
		ours.Elapsed = max(ours.Elapsed, theirs.Elapsed)
		if theirs.began.IsZero() {
			continue
		}
		if began := theirs.began.Add(later); ours.began.IsZero() || began.Before(ours.began) {
			ours.began = began
		}
		if ended := theirs.ended.Add(later); ended.After(ours.ended) {
			ours.ended = ended
		}
		waking := f.waking(ours)
		for _, at := range theirs.loaded {
			waking.loaded = append(waking.loaded, at.Add(later))
		}
		for _, at := range theirs.waited {
			waking.waited = append(waking.waited, at.Add(later))
		}
	}
	f.add(other, later)
}

// JoinElsewhere adds the responses of a process on another machine, whose times cannot be held against those of the others.
func (f *Fold) JoinElsewhere(other *Fold) {
	other.closeAll()
	f.Join(other, 0)
	f.elsewhere = true
}

// add adds what another fold knows of no round.
func (f *Fold) add(other *Fold, later time.Duration) {
	f.first.join(other.first, later)
	f.elsewhere = f.elsewhere || other.elsewhere
	f.latencies = append(f.latencies, other.latencies...)
	f.ages.join(other.ages)
	f.wakeLags = append(f.wakeLags, other.wakeLags...)
}

// Ledger returns the ledger of the responses so far.
func (f *Fold) Ledger() Ledger {
	f.closeAll()
	l := Ledger{Workers: f.workers, Rounds: len(f.rounds), Errors: f.first.errors(), OtherError: f.first.other.err, latencies: f.latencies}
	for _, round := range f.rounds {
		l.ByRound = append(l.ByRound, round.RoundSummary)
		l.Sum.Add(round.Sum)
		l.InRounds += round.Elapsed
	}
	slices.SortFunc(l.ByRound, func(a, b RoundSummary) int { return a.Number - b.Number })
	l.Latency, l.Elsewhere = quantiles(f.latencies), f.elsewhere
	if !f.elsewhere {
		l.WakeLag, l.Age = quantiles(f.wakeLags), quantiles(f.ages.all())
		l.Overdue = l.Age.beyond(f.ttl)
	}
	return l
}

func (f *Fold) closeAll() {
	for n := range f.rounds {
		f.Close(n)
	}
	if f.across != nil {
		f.wake(f.across)
	}
}

func (f *Fold) round(n int) *roundFold {
	round := f.rounds[n]
	if round == nil {
		round = &roundFold{RoundSummary: RoundSummary{Round: Round{Number: n, Workers: f.workers}}}
		f.rounds[n] = round
	}
	return round
}

// firstErrors are the earliest error of each kind of step, and the earliest of a request that failed for another reason: those
// of the requests that ended first.
type firstErrors struct{ get, lock, set, unlock, load, publish, other firstError }

type firstError struct {
	err    error // nil for none
	at     time.Time
	worker Worker
}

func (f *firstErrors) add(r Response) {
	if r.Err == nil && r.Errors == (cache.Errors{}) {
		return
	}
	one := func(err error) firstError { return firstError{err, r.At, r.Worker} }
	more := firstErrors{get: one(r.Errors.Get), lock: one(r.Errors.Lock), set: one(r.Errors.Set), unlock: one(r.Errors.Unlock), load: one(r.Errors.Load),
		publish: one(r.Errors.Publish)}
	more.other = one(r.OtherError())
	f.join(more, 0)
}

// join adds those of a process whose clock began so much later.
func (f *firstErrors) join(more firstErrors, later time.Duration) {
	f.get.join(more.get, later)
	f.lock.join(more.lock, later)
	f.set.join(more.set, later)
	f.unlock.join(more.unlock, later)
	f.load.join(more.load, later)
	f.publish.join(more.publish, later)
	f.other.join(more.other, later)
}

func (f firstErrors) errors() cache.Errors {
	return cache.Errors{Get: f.get.err, Lock: f.lock.err, Set: f.set.err, Unlock: f.unlock.err, Load: f.load.err, Publish: f.publish.err}
}

func (f *firstError) join(more firstError, later time.Duration) {
	more.at = more.at.Add(later)
	if more.err != nil && (f.err == nil || more.before(*f)) {
		*f = more
	}
}

// before orders errors by time; at the same moment it does not matter by what, but it must be the same.
func (f firstError) before(other firstError) bool {
	if by := f.at.Compare(other.at); by != 0 {
		return by < 0
	}
	if by := cmp.Or(f.worker.Round-other.worker.Round, f.worker.Process-other.worker.Process, f.worker.Number-other.worker.Number); by != 0 {
		return by < 0
	}
	return f.err.Error() < other.err.Error()
}

// OtherError is why the request failed, if that is none of the errors of its steps.
func (r Response) OtherError() error {
	isIt := func(one error) bool { return errors.Is(r.Err, one) }
	if r.Err == nil || slices.ContainsFunc(r.Errors.All(), isIt) {
		return nil
	}
	return r.Err
}
