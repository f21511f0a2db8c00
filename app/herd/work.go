package herd

import (
	"context"
	"time"

	"cachelab/app/cache"
)

// Probe gives what is done apart from the requests an account of its own, which the round of the request that began it waits for.
type Probe struct{ cache.NoProbe }

// Work is what is done apart from the requests: its counts are in none of them.
type Work string

// The kinds of work.
const (
	Flight  Work = "flight"  // what the callers of a key in one process share
	Refresh Work = "refresh" // in the background
)

// Refresh implements [cache.Probe].
func (Probe) Refresh(ctx context.Context, _ string) (context.Context, func(*cache.Result, error)) {
	return begin(ctx, Refresh)
}

// Flight implements [cache.Probe].
func (Probe) Flight(ctx context.Context, _ string) (context.Context, func(*cache.Result, error)) {
	return begin(ctx, Flight)
}

func begin(ctx context.Context, kind Work) (context.Context, func(*cache.Result, error)) {
	by, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return ctx, func(*cache.Result, error) {}
	}
	r, end := &request{worker: by.worker, work: by.work, started: time.Now()}, by.work()
	return context.WithValue(ctx, requestKey{}, r), func(result *cache.Result, err error) {
		response := Response{Work: kind}
		r.answered(&response, result, err)
		end(response)
	}
}

// work is in the round of its request, and in its phase.
func (s *Stream) work(c *cycle) func() (end func(Response)) {
	return func() func(Response) {
		s.mu.Lock()
		c.inFlight++
		s.mu.Unlock()
		s.works.Add(1)
		return func(r Response) {
			defer s.works.Done()
			s.leave(c, r)
		}
	}
}
