package cache_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cachelab/app/cache"
)

// absent is a store in which nothing is ever found, and which answers at once.
type absent struct{ cache.Store }

func (absent) Get(context.Context, string) (string, bool, error) { return "", false, nil }
func (absent) Set(context.Context, string, string, time.Duration) (string, bool, error) {
	return "", false, nil
}

// witness is a backend that says when it was asked, and when it answered.
type witness struct{ asked, answered time.Time }

func (l *witness) Load(context.Context, string) (string, error) {
	l.asked = time.Now()
	time.Sleep(5 * time.Millisecond) // all callers are waiting by then
	l.answered = time.Now()
	return "value", nil
}

// BenchmarkFlight is how long the callers of one flight wait beside its work: until the backend is asked, and from its answer
// until the last of them has it.
func BenchmarkFlight(b *testing.B) {
	for _, callers := range []int{50, 500, 10_000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			backend := &witness{}
			strategy := &cache.Coalesced{Aside: cache.Aside{Store: absent{}, Backend: backend, Probe: cache.NoProbe{}, TTL: time.Minute}, Limit: time.Minute}
			var before, after []time.Duration
			for b.Loop() {
				ends := make([]time.Time, callers)
				barrier := make(chan struct{})
				var ready, back sync.WaitGroup
				ready.Add(callers)
				for i := range callers {
					back.Go(func() {
						ready.Done()
						<-barrier
						if _, err := strategy.Get(ctx, "key"); err != nil {
							b.Error(err)
						}
						ends[i] = time.Now()
					})
				}
				ready.Wait()
				began := time.Now()
				close(barrier)
				back.Wait()
				before = append(before, backend.asked.Sub(began))
				after = append(after, slices.MaxFunc(ends, time.Time.Compare).Sub(backend.answered))
			}
			median := func(d []time.Duration) float64 {
				slices.Sort(d)
				return float64(d[len(d)/2].Nanoseconds()) / 1000
			}
			b.ReportMetric(median(before), "ask-us")
			b.ReportMetric(median(after), "last-answer-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}
