package herd

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"cachelab/app/cache"
)

// maxInFlight is how many requests of open traffic may be on their way; those that are due meanwhile are not sent, and counted.
const maxInFlight = 10_000

// Schedule returns when the requests of open traffic are due, from its begin: at a rate (a second), each independent of the
// others, as those of many users are. It is the same for the same seed and rate.
func Schedule(seed uint64, rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		random := rand.New(rand.NewPCG(seed, 0))
		for due := 0.0; ; {
			due += random.ExpFloat64() / rate
			if !yield(time.Duration(due * float64(time.Second))) {
				return
			}
		}
	}
}

// open sends each request when it is due, whatever became of those before, until ctx ends or all are sent that are due within
// the length (0: no limit): they are the same however busy the machine is. It returns when all have their answers.
func (s *Stream) open(ctx, requests context.Context, length time.Duration) {
	began := time.Now()
	processes := max(1, s.Processes)
	places := make(chan struct{}, maxInFlight/processes)
	var sent sync.WaitGroup
	n := -1
	for offset := range Schedule(s.Seed, s.Rate) {
		n++
		if n%processes != max(1, s.Process)-1 {
			continue // another process's
		}
		due := began.Add(offset)
		if length > 0 && offset >= length || cache.Sleep(ctx, time.Until(due)) != nil {
			break
		}
		select {
		case places <- struct{}{}:
			number := n/processes%s.Workers + 1
			sent.Go(func() {
				defer func() { <-places }()
				s.request(requests, number, due)
			})
		default:
			s.mu.Lock()
			s.phase.NotSent++
			s.mu.Unlock()
		}
	}
	sent.Wait()
}
