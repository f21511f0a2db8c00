// Package events turns the steps of requests into lines that a person can follow. It sits around the store, the
// backend and the probe, so that the strategies need not know of it.
package events

import (
	"context"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// Step is what happened, as it is printed.
type Step string

// The steps, named after the commands.
const (
	GetHit      Step = "GET HIT"
	GetMiss     Step = "GET MISS"
	Acquired    Step = "SET NX PX acquired"
	Wait        Step = "WAIT"
	RecheckHit  Step = "GET HIT on the re-check"
	RecheckMiss Step = "GET MISS on the re-check"
	Call        Step = BackendCall
	CallEnded   Step = "BACKEND answered"
	Set         Step = "SET"
	Released    Step = "DEL released"
	Lost        Step = "DEL refused: the lock is not ours"
	WaitEnded   Step = "WAIT ended"
	Failed      Step = "FAILED"
	Fault       Step = "FAULT" // injected by a drill
)

// BackendCall is the Text of a Failed backend call; those of commands are the commands.
const BackendCall = "BACKEND CALL"

// Event is one step of one worker.
type Event struct {
	Worker herd.Worker
	Step   Step
	Polls  int           // WaitEnded: how often it looked
	Found  bool          // WaitEnded: the wait ended with the value
	TTL    time.Duration // Set
	Over   bool          // Set: it replaced a value
	Text   string        // Failed: the command; Fault: what was done
	Err    error         // Failed: why
}

// A Teller passes each step on. The function is called from many goroutines and must not block for long.
type Teller func(Event)

func (t Teller) tell(ctx context.Context, e Event) {
	e.Worker = herd.WorkerFrom(ctx)
	t(e)
}

func (t Teller) fail(ctx context.Context, command string, err error) {
	t.tell(ctx, Event{Step: Failed, Text: command, Err: err})
}

// Fault tells of a fault that a drill injected.
func (t Teller) Fault(ctx context.Context, text string) { t.tell(ctx, Event{Step: Fault, Text: text}) }

// Step tells of a step that another process reported; with an error, that its backend call failed.
func (t Teller) Step(ctx context.Context, s Step, err error) {
	if err != nil {
		t.fail(ctx, BackendCall, err)
		return
	}
	t.tell(ctx, Event{Step: s})
}

// Store returns next, told.
func (t Teller) Store(next cache.Store) cache.Store { return store{next, t} }

// Loader returns next, told.
func (t Teller) Loader(next cache.Loader) cache.Loader { return loader{next, t} }

// Probe returns next, told.
func (t Teller) Probe(next cache.Probe) cache.Probe { return probe{next, t} }

type store struct {
	next cache.Store
	Teller
}

func (s store) Get(ctx context.Context, key string) (string, bool, error) {
	value, found, err := s.next.Get(ctx, key)
	s.got(ctx, found, err)
	return value, found, err
}

func (s store) GetTTL(ctx context.Context, key string) (string, time.Duration, bool, error) {
	value, left, found, err := s.next.GetTTL(ctx, key)
	s.got(ctx, found, err)
	return value, left, found, err
}

func (s store) got(ctx context.Context, found bool, err error) {
	switch why := cache.ReadOf(ctx); {
	case err != nil:
		s.fail(ctx, "GET", err)
	case why == cache.Poll: // the end of the wait tells how many there were
	case why == cache.Recheck && found:
		s.tell(ctx, Event{Step: RecheckHit})
	case why == cache.Recheck:
		s.tell(ctx, Event{Step: RecheckMiss})
	case found:
		s.tell(ctx, Event{Step: GetHit})
	default:
		s.tell(ctx, Event{Step: GetMiss})
	}
}

func (s store) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := s.next.Set(ctx, key, value, ttl)
	if err != nil {
		s.fail(ctx, "SET", err)
	} else {
		s.tell(ctx, Event{Step: Set, TTL: ttl, Over: found})
	}
	return replaced, found, err
}

func (s store) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := s.next.Lock(ctx, key, token, ttl)
	switch {
	case err != nil:
		s.fail(ctx, "SET NX PX", err)
	case holder == token:
		s.tell(ctx, Event{Step: Acquired})
	}
	return holder, err
}

func (s store) Unlock(ctx context.Context, key, token string) (bool, error) {
	released, err := s.next.Unlock(ctx, key, token)
	switch {
	case err != nil:
		s.fail(ctx, "DEL", err)
	case released:
		s.tell(ctx, Event{Step: Released})
	default:
		s.tell(ctx, Event{Step: Lost})
	}
	return released, err
}

type loader struct {
	next cache.Loader
	Teller
}

func (l loader) Load(ctx context.Context, key string) (string, error) {
	l.tell(ctx, Event{Step: Call})
	value, err := l.next.Load(ctx, key)
	if err != nil {
		l.fail(ctx, BackendCall, err)
	} else {
		l.tell(ctx, Event{Step: CallEnded})
	}
	return value, err
}

type probe struct {
	next cache.Probe
	Teller
}

func (p probe) Miss(ctx context.Context, key string) (context.Context, func(cache.Result, error)) {
	return p.next.Miss(ctx, key)
}

func (p probe) Wait(ctx context.Context, holder string) (context.Context, func(cache.Result, error)) {
	p.tell(ctx, Event{Step: Wait})
	inner, end := p.next.Wait(ctx, holder)
	return inner, func(r cache.Result, err error) {
		end(r, err)
		// Polls that missed and polls that failed are not the one that found it.
		p.tell(ctx, Event{Step: WaitEnded, Polls: r.Polls, Found: r.Hits > 0})
	}
}
