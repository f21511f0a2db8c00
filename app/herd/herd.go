// Package herd makes the herd: rounds of workers that are released together, each with one request, and the
// ledger of what came back.
package herd

import (
	"context"
	"fmt"
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
	Number    int
	Workers   int // of all processes
	Processes int // that they are of
}

// Worker names one request: the n-th worker (from 1) of a round.
type Worker struct {
	Round  int
	Number int
	// Process is the number (from 1) of its process, which has as many as the others: the first has the first ones. It is 0 if the run
	// has only one.
	Process int
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
	// Elsewhere says that its times are those of another machine, and cannot be held against the others.
	Elsewhere bool
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
	// Worker is called before a worker's request, and end with its response, which may be read until it returns.
	Worker(ctx context.Context, worker Worker) (inner context.Context, end func(*Response))
}

// NoObserver is an Observer that does nothing.
type NoObserver struct{}

// Round implements [Observer].
func (NoObserver) Round(ctx context.Context, _ Round) (context.Context, func(RoundSummary)) {
	return ctx, func(RoundSummary) {}
}

// Worker implements [Observer].
func (NoObserver) Worker(ctx context.Context, _ Worker) (context.Context, func(*Response)) {
	return ctx, func(*Response) {}
}

// Herd is the plan of a run. It is also a [Party]: its own workers.
type Herd struct {
	Strategy cache.Strategy
	Key      string
	Workers  int // at least 1; of all parties
	Rounds   int // at least 1
	Keeper   Keeper
	Observer Observer
	Results
	// Process is the number of this process, from 1; 0 if the run has only one.
	Process int
	// Parties, if there are any, are the processes whose workers ask. This one has none then, and no strategy.
	Parties []Party
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
	started             time.Time
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
	parties := h.Parties
	if parties == nil {
		parties = []Party{h}
	}
	fold, expiring, spreads := NewFold(h.Workers, h.TTL), time.Duration(0), []time.Duration(nil)
	defer func() {
		ledger = fold.Ledger()
		ledger.Processes, ledger.Expiring, ledger.Spread = len(parties), expiring, quantiles(spreads)
	}()
	for n := 1; n <= h.Rounds; n++ {
		round := Round{Number: n, Workers: h.Workers, Processes: len(parties)}
		gathered, err := gather(ctx, parties, round)
		if err != nil {
			return ledger, fmt.Errorf("before round %d: %w", n, err)
		}
		waiting := time.Now()
		err = h.Keeper.AwaitExpiry(ctx, h.Key)
		expiring += time.Since(waiting)
		if err != nil {
			gathered.dismiss()
			return ledger, fmt.Errorf("waiting for the expiry of %q before round %d: %w", h.Key, n, err)
		}
		spread, err := h.round(ctx, round, gathered, fold)
		spreads = append(spreads, spread)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return ledger, fmt.Errorf("in round %d: %w", n, err)
		}
	}
	return ledger, nil
}

// round releases all workers from their barriers and collects their responses.
func (h *Herd) round(ctx context.Context, round Round, gathered crowds, fold *Fold) (spread time.Duration, err error) {
	roundCtx, end := h.Observer.Round(ctx, round)
	var responses []Response
	spread, err = gathered.release(roundCtx, func(r Response) {
		fold.Add(r)
		responses = append(responses, r)
	})
	summary := fold.Close(round.Number)
	summary.Processes = round.Processes
	end(summary)
	for _, r := range responses {
		h.keep(r)
	}
	return spread, err
}

// question is what all workers ask.
type question struct {
	observer Observer
	strategy cache.Strategy
	key      string
	about    Results
}

// ask is one worker's Get. What it came to is left in response: a herd that waits with results on its stacks makes them grow.
func (r *request) ask(ctx context.Context, q *question, response *Response) {
	ctx, end := q.observer.Worker(context.WithValue(ctx, requestKey{}, r), r.worker)
	result, err := q.strategy.Get(ctx, q.key)
	r.answered(response, result, err)
	if q.about.Answered != nil && err == nil {
		response.Answered = q.about.Answered(response.Value)
	}
	end(response)
}

// answered completes the response to the request, which has come now.
func (r *request) answered(response *Response, result *cache.Result, err error) {
	response.Result, response.Err = *result, err
	response.At = time.Now()
	response.Elapsed = response.At.Sub(r.started)
	response.Worker = r.worker
	response.Redundant, response.Repeated = int(r.redundant.Load()), int(r.repeated.Load())
}
