package drill

import (
	"context"
	"slices"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// calls watches the backend calls of each round.
type calls struct {
	mu     sync.Mutex
	rounds map[int]*roundOfCalls
}

type roundOfCalls struct {
	inFlight, peak int
	began          []time.Time // in order
}

func newCalls() *calls { return &calls{rounds: map[int]*roundOfCalls{}} }

// around returns next, with its calls counted.
func (c *calls) around(next cache.Loader) cache.Loader {
	return faultyLoader(func(ctx context.Context, key string) (string, error) {
		defer c.enter(herd.WorkerFrom(ctx).Round)()
		return next.Load(ctx, key)
	})
}

func (c *calls) enter(round int) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rounds[round]
	if r == nil {
		r = &roundOfCalls{}
		c.rounds[round] = r
	}
	r.inFlight++
	r.peak = max(r.peak, r.inFlight)
	r.began = append(r.began, time.Now())
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.inFlight--
	}
}

// peak returns the most calls of the round that were in flight at once.
func (c *calls) peak(round int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rounds[round]; r != nil {
		return r.peak
	}
	return 0
}

// perSecond returns how many calls of the round began in its busiest second, counted in tenths of it.
func (c *calls) perSecond(round int) int {
	const window = time.Second / 10
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rounds[round]
	if r == nil {
		return 0
	}
	most := 0
	for i, at := range r.began {
		end, _ := slices.BinarySearchFunc(r.began, at.Add(window), time.Time.Compare)
		most = max(most, end-i)
	}
	return most * 10
}
