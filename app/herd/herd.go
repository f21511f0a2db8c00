// Package herd makes the herd: rounds of workers that are released together, each with one request, and the
// ledger of what came back.
package herd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cachelab/app/cache"
)

// A Keeper prepares what the rounds need, on the side: it is no part of what is measured.
type Keeper interface {
	// AwaitExpiry returns when key is absent. It waits out an outage of the store for as long as the keeper
	// allows, and returns an error after that or when ctx ends.
	AwaitExpiry(ctx context.Context, key string) error
}

// Round names one round of a run; rounds count from 1.
type Round struct {
	Number  int
	Workers int
}

// Worker names one request: the n-th worker (from 1) of a round.
type Worker struct {
	Round  int
	Number int
}

// Response is what a worker brings back.
type Response struct {
	Worker Worker
	cache.Result
	Err     error
	Elapsed time.Duration // from the barrier's release to the answer; in a stream, from its own start
	At      time.Time     // when the answer came
	// Answered is when the backend had made the value that was served; zero if nobody knows.
	Answered time.Time
	// Redundant and Repeated are those of the request's backend calls that the cache should have spared: see [CountCall].
	Redundant, Repeated int
	// Work, if it is not "", says that it is of no request, but of a flight or of a refresh in the background, which the worker's
	// request began. It counts, and nobody was served.
	Work Work
}

// Age is how long before the response the backend had made the value, if that is known.
func (r Response) Age() (age time.Duration, known bool) {
	return r.At.Sub(r.Answered), !r.Answered.IsZero()
}

// An Observer is told of rounds and workers as they come and go. The contexts it returns are used inside.
// Its methods are called from many goroutines.
type Observer interface {
	// Round is called when all workers are at the barrier (in a stream, before the round's first request); end
	// after the last of them is back.
	Round(ctx context.Context, round Round) (inner context.Context, end func(RoundSummary))
	// Worker is called before a worker's request, and end with its response.
	Worker(ctx context.Context, worker Worker) (inner context.Context, end func(Response))
}

// NoObserver is an Observer that does nothing.
type NoObserver struct{}

// Round implements [Observer].
func (NoObserver) Round(ctx context.Context, _ Round) (context.Context, func(RoundSummary)) {
	return ctx, func(RoundSummary) {}
}

// Worker implements [Observer].
func (NoObserver) Worker(ctx context.Context, _ Worker) (context.Context, func(Response)) {
	return ctx, func(Response) {}
}

// Herd is the plan of a run.
type Herd struct {
	Strategy cache.Strategy
	Key      string
	Workers  int // at least 1
	Rounds   int // at least 1
	Keeper   Keeper
	Observer Observer
	Results
}

// Results say what becomes of responses, beside the ledger.
type Results struct {
	// TTL is how long values are cached: what is older is overdue.
	TTL time.Duration
	// Answered, if set, tells when the backend had made a value; the zero time if it is not known.
	Answered func(value string) time.Time
	// Keep, if set, is given each response, one at a time. It is not told while a round of a [Herd] is on its way.
	Keep func(Response)
}

func (r Results) keep(response Response) {
	if r.Keep != nil {
		r.Keep(response)
	}
}

// request is a request on its way.
type request struct {
	worker              Worker
	work                func() (end func(Response)) // begins work of its own
	redundant, repeated atomic.Int32                // of its backend calls
}

type requestKey struct{}

// WorkerFrom returns the worker on whose behalf the context is used; the zero Worker if there is none.
func WorkerFrom(ctx context.Context) Worker {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.worker
	}
	return Worker{}
}

// CountCall tells of a backend call of the context's request that the cache should have spared: redundant, begun while another
// for the same key was in flight, or repeated, begun soon after an answer. It is told before the call returns.
func CountCall(ctx context.Context, redundant, repeated bool) {
	r, ok := ctx.Value(requestKey{}).(*request)
	if ok && redundant {
		r.redundant.Add(1)
	}
	if ok && repeated {
		r.repeated.Add(1)
	}
}

// Run runs the rounds one after the other and returns the ledger of those that took place, also with an
// error: the reason why the run ended early. Requests that fail are in the ledger and are no such reason.
func (h *Herd) Run(ctx context.Context) (ledger Ledger, err error) {
	fold, expiring := NewFold(h.Workers, h.TTL), time.Duration(0)
	defer func() {
		ledger = fold.Ledger()
		ledger.Expiring = expiring
	}()
	for n := 1; n <= h.Rounds; n++ {
		waiting := time.Now()
		err := h.Keeper.AwaitExpiry(ctx, h.Key)
		expiring += time.Since(waiting)
		if err != nil {
			return ledger, fmt.Errorf("waiting for the expiry of %q before round %d: %w", h.Key, n, err)
		}
		h.round(ctx, Round{Number: n, Workers: h.Workers}, fold)
		if ctx.Err() != nil {
			return ledger, fmt.Errorf("in round %d: %w", n, context.Cause(ctx))
		}
	}
	return ledger, nil
}

// round releases all workers from one barrier and collects their responses.
func (h *Herd) round(ctx context.Context, round Round, fold *Fold) {
	responses := make([]Response, round.Workers)
	var mu sync.Mutex // guards works
	var works []Response
	barrier := make(chan struct{})
	var released time.Time // written before the barrier opens

	var ready, back, background sync.WaitGroup
	work := func() func(Response) {
		background.Add(1)
		return func(r Response) {
			defer background.Done()
			mu.Lock()
			defer mu.Unlock()
			works = append(works, r)
		}
	}
	ready.Add(round.Workers)
	roundCtx, end := h.Observer.Round(ctx, round)
	for i := range responses {
		back.Go(func() {
			ready.Done()
			<-barrier
			r := &request{worker: Worker{Round: round.Number, Number: i + 1}, work: work}
			responses[i] = r.ask(roundCtx, h.Observer, h.Strategy, h.Key, h.Results, released)
		})
	}
	ready.Wait()
	released = time.Now()
	close(barrier)
	back.Wait()
	background.Wait()

	responses = append(responses, works...)
	for _, r := range responses {
		fold.Add(r)
	}
	end(fold.Close(round.Number))
	for _, r := range responses {
		h.keep(r)
	}
}

// ask is one worker's Get.
func (r *request) ask(ctx context.Context, o Observer, s cache.Strategy, key string, about Results, started time.Time) Response {
	ctx, end := o.Worker(context.WithValue(ctx, requestKey{}, r), r.worker)
	result, err := s.Get(ctx, key)
	response := r.response(result, err, started)
	if about.Answered != nil && err == nil {
		response.Answered = about.Answered(result.Value)
	}
	end(response)
	return response
}

// response is what the request came to, now.
func (r *request) response(result cache.Result, err error, started time.Time) Response {
	now := time.Now()
	return Response{Worker: r.worker, Result: result, Err: err, Elapsed: now.Sub(started), At: now,
		Redundant: int(r.redundant.Load()), Repeated: int(r.repeated.Load())}
}
