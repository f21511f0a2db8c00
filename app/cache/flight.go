package cache

import (
	"context"
	"errors"
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
	missed chan struct{}   // closed when its GET found nothing
	miss   context.Context // that of its MISS, from then on
	done   chan struct{}
	result Result
	err    error
}

// share answers from the flight of key, and starts it if there is none: fly is its work.
func (f *Flights) share(ctx context.Context, a *Aside, key string, limit time.Duration, fly func(context.Context, *request) error) (Result, error) {
	f.mu.Lock()
	fl, joined := f.byKey[key]
	if !joined {
		fl = &flight{missed: make(chan struct{}), done: make(chan struct{})}
		if f.byKey == nil {
			f.byKey = map[string]*flight{}
		}
		f.byKey[key] = fl
	}
	f.mu.Unlock()
	if joined {
		return fl.join(ctx, a, key)
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
	return fl.await(ctx)
}

// errNoAnswer is what a flight comes to whose goroutine was ended from within.
var errNoAnswer = errors.New("the flight ended without an answer")

func (f *Flights) land(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, key)
}

// join is a caller that got another's flight. It waits from the moment on when the flight has missed.
func (fl *flight) join(ctx context.Context, a *Aside, key string) (_ Result, err error) {
	select {
	case <-fl.missed:
	case <-fl.done:
	case <-ctx.Done():
		return Result{Outcome: Failed}, context.Cause(ctx)
	}
	select {
	case <-fl.missed:
	default: // its GET hit, or failed
		return fl.await(ctx)
	}
	inner, end := a.Probe.Join(ctx, fl.miss)
	started := time.Now()
	r, err := fl.await(inner)
	r.Waited = time.Since(started)
	if err == nil {
		r.Outcome = Waited
	}
	end(r, err)
	return r, err
}

// await returns what the flight came to. Its counts are not the caller's: [Probe.Flight] is told of them.
func (fl *flight) await(ctx context.Context) (Result, error) {
	select {
	case <-fl.done:
		return Result{Value: fl.result.Value, Outcome: fl.result.Outcome, Errors: fl.result.Errors}, fl.err
	case <-ctx.Done():
		return Result{Outcome: Failed}, context.Cause(ctx)
	}
}

// Len returns how many flights are on their way.
func (f *Flights) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byKey)
}
