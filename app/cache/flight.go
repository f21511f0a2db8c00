package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrFlightTimeout ends a flight that took longer than its limit.
var ErrFlightTimeout = errors.New("gave up the flight")

// Flights let the callers of one key in one process share the work of one of them. The zero value is ready.
//
// A flight is nobody's: it keeps the values of its first caller's context and drops its end, and ends by itself or with its
// limit. Each caller leaves when its own context ends. An error reaches all callers, also that of a panic (x/sync's
// singleflight ends the process there); it is not remembered: a call after the answer starts a new flight.
type Flights struct {
	mu    sync.Mutex
	byKey map[string]*flight
}

// flight is work on its way. Its answer may be read when done is closed.
type flight struct {
	flights *Flights
	key     string
	done    chan struct{}
	answer  Result // of its work the value, the outcome and the errors
	err     error

	mu      sync.Mutex      // guards all below
	miss    context.Context // that of its MISS; nil until its GET has found nothing
	joiners []*joiner       // those of until then
}

// joiner is a caller that got another's flight.
type joiner struct {
	ctx   context.Context
	since time.Time
	end   func(*Result, error) // of its wait; nil before
}

func (j *joiner) wait(p Probe, miss context.Context) {
	j.since = time.Now()
	_, j.end = p.Join(j.ctx, miss)
}

// A flyer does the work of flights.
type flyer interface {
	fly(context.Context, *request) error
}

// share returns what the flight of key comes to, and starts it if there is none. A herd waits in here, with pointers and no results
// on its stacks: so these need no more than the 2 kB that they begin with, and growing them would be the most of what a waiter costs.
func (f *Flights) share(ctx context.Context, a *Aside, key string, limit time.Duration, work flyer) (*Result, error) {
	f.mu.Lock()
	fl, joined := f.byKey[key]
	if !joined {
		fl = &flight{flights: f, key: key, done: make(chan struct{})}
		if f.byKey == nil {
			f.byKey = map[string]*flight{}
		}
		f.byKey[key] = fl
	}
	f.mu.Unlock()
	if !joined {
		fl.start(ctx, a, limit, work)
		return fl.await(ctx, nil)
	}
	return fl.await(ctx, fl.join(ctx, a.Probe))
}

// start begins the work, which does not end with ctx.
func (fl *flight) start(ctx context.Context, a *Aside, limit time.Duration, work flyer) {
	inner, end := a.Probe.Flight(context.WithoutCancel(ctx), fl.key)
	go func() {
		limited, cancel := context.WithTimeoutCause(inner, limit, ErrFlightTimeout)
		defer cancel()
		r := a.request(fl.key)
		r.flight = fl
		err := errNoAnswer
		defer func() {
			result, err := r.done(err)
			end(result, err)
			fl.land(result, err)
		}()
		err = work.fly(limited, r)
	}()
}

// errNoAnswer is what a flight comes to whose goroutine was ended from within.
var errNoAnswer = errors.New("the flight ended without an answer")

// land answers the callers, if they have no answer yet: a call after this starts a new flight. Nobody waits for what the work does after
// it.
func (fl *flight) land(result *Result, err error) {
	select {
	case <-fl.done:
		return
	default:
	}
	fl.flights.mu.Lock()
	delete(fl.flights.byKey, fl.key)
	fl.flights.mu.Unlock()
	fl.answer = Result{Value: result.Value, Outcome: result.Outcome, Errors: result.Errors}
	fl.err = err
	close(fl.done)
}

// missed says that the flight's GET has found nothing, so whoever has joined it waits from now on. The flight begins their
// waits itself: they are woken once, by the answer.
func (fl *flight) missed(p Probe, miss context.Context) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.miss = miss
	for _, j := range fl.joiners {
		j.wait(p, miss)
	}
	fl.joiners = nil
}

// join is a caller that got another's flight. It waits from the moment on when the flight has missed.
func (fl *flight) join(ctx context.Context, p Probe) *joiner {
	j := &joiner{ctx: ctx}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.miss != nil {
		j.wait(p, fl.miss)
	} else {
		fl.joiners = append(fl.joiners, j)
	}
	return j
}

// await tells a caller what the flight came to; j is nil for the one that started it. The counts of the work are in no caller's result:
// [Probe.Flight] is told of them.
func (fl *flight) await(ctx context.Context, j *joiner) (*Result, error) {
	select {
	case <-fl.done:
		r := fl.answer
		return fl.left(j, &r, fl.err)
	case <-ctx.Done():
		return fl.left(j, &Result{Outcome: Failed}, context.Cause(ctx))
	}
}

// left ends the wait of a joiner, if it has begun: it has not if the flight's GET hit, or failed, or is not answered yet.
func (fl *flight) left(j *joiner, r *Result, err error) (*Result, error) {
	if j == nil {
		return r, err
	}
	if j.ctx.Err() != nil { // its wait must not begin any more
		fl.mu.Lock()
		fl.joiners = slices.DeleteFunc(fl.joiners, func(other *joiner) bool { return other == j })
		fl.mu.Unlock()
	}
	if j.end != nil {
		r.Waited = time.Since(j.since)
		if err == nil {
			r.Outcome = Waited
		}
		j.end(r, err)
	}
	return r, err
}

// Len returns how many flights are on their way.
func (f *Flights) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byKey)
}
