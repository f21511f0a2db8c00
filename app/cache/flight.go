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

// flight is work on its way. What it came to may be read when done is closed.
type flight struct {
	done   chan struct{}
	result Result
	err    error

	mu      sync.Mutex      // guards all below
	miss    context.Context // that of its MISS; nil until its GET has found nothing
	joiners []*joiner       // those of until then
}

// joiner is a caller that got another's flight.
type joiner struct {
	ctx   context.Context
	since time.Time
	end   func(Result, error) // of its wait; nil before
}

func (j *joiner) wait(p Probe, miss context.Context) {
	j.since = time.Now()
	_, j.end = p.Join(j.ctx, miss)
}

// share leaves in result what the flight of key comes to, and starts it if there is none: fly is its work. Many callers wait here: their
// stacks hold no copies of it.
func (f *Flights) share(ctx context.Context, a *Aside, key string, limit time.Duration, fly func(context.Context, *request) error, result *Result) error {
	f.mu.Lock()
	fl, joined := f.byKey[key]
	if !joined {
		fl = &flight{done: make(chan struct{})}
		if f.byKey == nil {
			f.byKey = map[string]*flight{}
		}
		f.byKey[key] = fl
	}
	f.mu.Unlock()
	if joined {
		return fl.join(ctx, a.Probe, result)
	}
	inner, end := a.Probe.Flight(context.WithoutCancel(ctx), key)
	go func() {
		limited, cancel := context.WithTimeoutCause(inner, limit, ErrFlightTimeout)
		defer cancel()
		r := a.request(key)
		r.flight = fl
		err := errNoAnswer
		defer func() {
			fl.result, fl.err = r.done(err)
			f.land(key)
			end(fl.result, fl.err)
			close(fl.done)
		}()
		err = fly(limited, r)
	}()
	return fl.await(ctx, result)
}

// errNoAnswer is what a flight comes to whose goroutine was ended from within.
var errNoAnswer = errors.New("the flight ended without an answer")

func (f *Flights) land(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, key)
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
func (fl *flight) join(ctx context.Context, p Probe, r *Result) error {
	j := &joiner{ctx: ctx}
	fl.mu.Lock()
	if fl.miss != nil {
		j.wait(p, fl.miss)
	} else {
		fl.joiners = append(fl.joiners, j)
	}
	fl.mu.Unlock()
	err := fl.await(ctx, r)
	if ctx.Err() != nil {
		fl.left(j)
	}
	if j.end == nil { // the flight's GET hit, or failed; or it is not known yet
		return err
	}
	r.Waited = time.Since(j.since)
	if err == nil {
		r.Outcome = Waited
	}
	j.end(*r, err)
	return err
}

// left is the end of a joiner whose context has ended: its wait must not begin any more.
func (fl *flight) left(j *joiner) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.joiners = slices.DeleteFunc(fl.joiners, func(other *joiner) bool { return other == j })
}

// await tells what the flight came to. Its counts are not the caller's: [Probe.Flight] is told of them.
func (fl *flight) await(ctx context.Context, r *Result) error {
	select {
	case <-fl.done:
		r.Value, r.Outcome, r.Errors = fl.result.Value, fl.result.Outcome, fl.result.Errors
		return fl.err
	case <-ctx.Done():
		r.Outcome = Failed
		return context.Cause(ctx)
	}
}

// Len returns how many flights are on their way.
func (f *Flights) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byKey)
}
