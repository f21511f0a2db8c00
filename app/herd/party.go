package herd

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Party is the workers of one process: this one's, or another's.
type Party interface {
	// Gather brings them to the barrier of a round. Release or Dismiss must follow.
	Gather(ctx context.Context, round Round) (Gathered, error)
}

// Gathered are workers at the barrier.
type Gathered interface {
	// Release opens the barrier, and returns when all are back: when it was opened. It tells what each of them brought back, one
	// at a time. An error says that the process was lost; what it told before counts.
	Release(ctx context.Context, tell func(Response)) (opened time.Time, err error)
	// Dismiss sends them away: nobody asks.
	Dismiss()
}

// crowd are the workers of this process at the barrier.
type crowd struct {
	*Herd
	barrier          chan struct{}
	back, background sync.WaitGroup

	// Written before the barrier opens.
	ctx      context.Context // nil: they were dismissed
	released time.Time

	responses []Response
	mu        sync.Mutex // guards works
	works     []Response
}

// Gather implements [Party]: with the workers of this process.
func (h *Herd) Gather(_ context.Context, round Round) (Gathered, error) {
	c := &crowd{Herd: h, barrier: make(chan struct{}), responses: make([]Response, h.Workers)}
	var ready sync.WaitGroup
	q := &question{h.Observer, h.Strategy, h.Key, h.Results}
	first := max(0, h.Process-1) * h.Workers // each process has as many
	ready.Add(h.Workers)
	for i := range c.responses {
		r := &request{worker: Worker{Round: round.Number, Number: first + i + 1, Process: h.Process}, work: c.work}
		c.back.Go(func() {
			ready.Done()
			<-c.barrier
			if c.ctx != nil {
				r.started = c.released
				r.ask(c.ctx, q, &c.responses[i])
			}
		})
	}
	ready.Wait()
	return c, nil
}

// Release implements [Gathered]. Nothing is told before the last is back.
func (c *crowd) Release(ctx context.Context, tell func(Response)) (time.Time, error) {
	c.ctx, c.released = ctx, time.Now()
	close(c.barrier)
	c.back.Wait()
	c.background.Wait()
	for _, r := range append(c.responses, c.works...) {
		tell(r)
	}
	return c.released, nil
}

// Dismiss implements [Gathered].
func (c *crowd) Dismiss() {
	close(c.barrier)
	c.back.Wait()
}

// work is begun by a request, and is waited for.
func (c *crowd) work() (end func(Response)) {
	c.background.Add(1)
	return func(r Response) {
		defer c.background.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.works = append(c.works, r)
	}
}

// gather brings all parties to the barrier at the same time. With an error nobody is left there.
func gather(ctx context.Context, parties []Party, round Round) (crowds, error) {
	gathered, errs := make(crowds, len(parties)), make([]error, len(parties))
	var all sync.WaitGroup
	for i, party := range parties {
		all.Go(func() { gathered[i], errs[i] = party.Gather(ctx, round) })
	}
	all.Wait()
	err := errors.Join(errs...)
	if err != nil {
		gathered.dismiss()
	}
	return gathered, err
}

// crowds are the parties of a round at the barrier; nil for one that was lost.
type crowds []Gathered

func (c crowds) dismiss() {
	for _, one := range c {
		if one != nil {
			one.Dismiss()
		}
	}
}

// release opens the barrier for all, and returns how much later the last opened than the first. The error names those that
// were lost meanwhile; the others have their answers.
func (c crowds) release(ctx context.Context, tell func(Response)) (spread time.Duration, err error) {
	var mu sync.Mutex // one response at a time
	opened, errs := make([]time.Time, len(c)), make([]error, len(c))
	var all sync.WaitGroup
	for i, one := range c {
		all.Go(func() {
			opened[i], errs[i] = one.Release(ctx, func(r Response) {
				mu.Lock()
				defer mu.Unlock()
				tell(r)
			})
		})
	}
	all.Wait()
	return spreadOf(opened), errors.Join(errs...)
}

// spreadOf is the time from the first to the last; those that are not known are left out.
func spreadOf(times []time.Time) time.Duration {
	var first, last time.Time
	for _, at := range times {
		if at.IsZero() {
			continue
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}
