// Package events turns the steps of requests into lines that a person can follow. It sits around the store, the
// backend and the probe, so that the strategies need not know of it.
package events

import (
	"context"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// Kind is what happened, as it is printed.
type Kind string

// The steps, named after the commands.
const (
	GetHit      Kind = "GET HIT"
	GetMiss     Kind = "GET MISS"
	Acquired    Kind = "SET NX PX acquired"
	Wait        Kind = "WAIT"
	RecheckHit  Kind = "GET HIT on the re-check"
	RecheckMiss Kind = "GET MISS on the re-check"
	Call        Kind = BackendCall
	CallEnded   Kind = "BACKEND answered"
	Set         Kind = "SET"
	Released    Kind = "DEL released"
	Lost        Kind = "DEL refused: the lock is not ours"
	Late        Kind = "SET refused: late, a newer value is there"
	WaitEnded   Kind = "WAIT ended"
	Landed      Kind = "ANSWERED by the flight" // ends the wait of a caller that shares one
	Failed      Kind = "FAILED"
	Fault       Kind = "FAULT" // injected by a drill
)

// BackendCall is the Text of a Failed backend call; those of commands are the commands.
const BackendCall = "BACKEND CALL"

// Event is one step of one worker.
type Event struct {
	Worker herd.Worker
	Kind   Kind
	Polls  int           // WaitEnded: how often it looked
	Found  bool          // WaitEnded: the wait ended with the value
	TTL    time.Duration // Set
	Over   bool          // Set: it replaced a value
	Text   string        // Failed: the command; Fault: what was done
	Err    error         // Failed: why
}

// A Handler passes each step on. The function is called from many goroutines and must not block for long.
type Handler func(Event)

func (t Handler) tell(ctx context.Context, e Event) {
	e.Worker = herd.WorkerFrom(ctx)
	t(e)
}

func (t Handler) fail(ctx context.Context, command string, err error) {
	t.tell(ctx, Event{Kind: Failed, Text: command, Err: err})
}

// Fault tells of a fault that a drill injected.
func (t Handler) Fault(ctx context.Context, text string) { t.tell(ctx, Event{Kind: Fault, Text: text}) }

// Step tells of a step that another process reported; with an error, that its backend call failed.
func (t Handler) Step(ctx context.Context, s Kind, err error) {
	if err != nil {
		t.fail(ctx, BackendCall, err)
		return
	}
	t.tell(ctx, Event{Kind: s})
}

// Store returns next, with an event for each answer.
func (t Handler) Store(next cache.Store) cache.Store { return store{next, t} }

// Loader returns next, with an event when a call begins and when it ends.
func (t Handler) Loader(next cache.Loader) cache.Loader { return loader{next, t} }

// Probe returns next, with an event when a wait begins and when it ends.
func (t Handler) Probe(next cache.Probe) cache.Probe { return probe{next, t} }

type store struct {
	next cache.Store
	Handler
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
		s.tell(ctx, Event{Kind: RecheckHit})
	case why == cache.Recheck:
		s.tell(ctx, Event{Kind: RecheckMiss})
	case found:
		s.tell(ctx, Event{Kind: GetHit})
	default:
		s.tell(ctx, Event{Kind: GetMiss})
	}
}

func (s store) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := s.next.Set(ctx, key, value, ttl)
	if err != nil {
		s.fail(ctx, "SET", err)
	} else {
		s.tell(ctx, Event{Kind: Set, TTL: ttl, Over: found})
	}
	return replaced, found, err
}

func (s store) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := s.next.Lock(ctx, key, token, ttl)
	switch {
	case err != nil:
		s.fail(ctx, "SET NX PX", err)
	case holder == token:
		s.tell(ctx, Event{Kind: Acquired})
	}
	return holder, err
}

func (s store) Unlock(ctx context.Context, key, token string) (bool, error) {
	released, err := s.next.Unlock(ctx, key, token)
	switch {
	case err != nil:
		s.fail(ctx, "DEL", err)
	case released:
		s.tell(ctx, Event{Kind: Released})
	default:
		s.tell(ctx, Event{Kind: Lost})
	}
	return released, err
}

func (s store) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	stored, err := s.next.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	if err != nil {
		s.fail(ctx, "SET, DEL", err)
		return stored, err
	}
	if stored.Stored {
		s.tell(ctx, Event{Kind: Set, TTL: ttl, Over: stored.Found})
	} else {
		s.tell(ctx, Event{Kind: Late})
	}
	if stored.Released {
		s.tell(ctx, Event{Kind: Released})
	} else {
		s.tell(ctx, Event{Kind: Lost})
	}
	return stored, nil
}

func (s store) Publish(ctx context.Context, channel string) error {
	err := s.next.Publish(ctx, channel)
	if err != nil {
		s.fail(ctx, "PUBLISH", err)
	}
	return err
}

type loader struct {
	next cache.Loader
	Handler
}

func (l loader) Load(ctx context.Context, key string) (string, error) {
	l.tell(ctx, Event{Kind: Call})
	value, err := l.next.Load(ctx, key)
	if err != nil {
		l.fail(ctx, BackendCall, err)
	} else {
		l.tell(ctx, Event{Kind: CallEnded})
	}
	return value, err
}

type probe struct {
	next cache.Probe
	Handler
}

func (p probe) Miss(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	return p.next.Miss(ctx, key)
}

func (p probe) Refresh(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	return p.next.Refresh(ctx, key)
}

func (p probe) Wake(ctx context.Context, by cache.Wake) { p.next.Wake(ctx, by) }

func (p probe) Flight(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	return p.next.Flight(ctx, key)
}

func (p probe) Wait(ctx context.Context, holder string) (context.Context, func(*cache.Result, error)) {
	p.tell(ctx, Event{Kind: Wait})
	inner, end := p.next.Wait(ctx, holder)
	return inner, func(r *cache.Result, err error) {
		end(r, err)
		// Polls that missed and polls that failed are not the one that found it.
		p.tell(ctx, Event{Kind: WaitEnded, Polls: r.Polls, Found: r.Hits > 0})
	}
}

func (p probe) Join(ctx, miss context.Context) (context.Context, func(*cache.Result, error)) {
	p.tell(ctx, Event{Kind: Wait})
	inner, end := p.next.Join(ctx, miss)
	return inner, func(r *cache.Result, err error) {
		end(r, err)
		if err != nil {
			p.tell(ctx, Event{Kind: WaitEnded})
		} else {
			p.tell(ctx, Event{Kind: Landed})
		}
	}
}
