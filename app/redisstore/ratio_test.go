package redisstore_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// lags sends callers to each of the instances on an expired key, and returns how long after the backend's answer each of those
// that waited had its own, in ascending order.
func lags(t *testing.T, r *redisstore.Redis, callers int, loaded *time.Time, instances []cache.Strategy) (all []time.Duration) {
	t.Helper()
	if err := r.Forget(t.Context(), "key", anyValue); err != nil {
		t.Fatal(err)
	}
	at := make([]time.Time, len(instances)*callers)
	var wg sync.WaitGroup
	for i := range at {
		wg.Go(func() {
			result, err := instances[i%len(instances)].Get(t.Context(), "key")
			if err != nil || result.Value != "19.99" {
				t.Errorf("got %+v, %v", result, err)
			}
			if result.Outcome == cache.Waited {
				at[i] = time.Now()
			}
		})
	}
	wg.Wait()
	for _, a := range at {
		if !a.IsZero() {
			all = append(all, a.Sub(*loaded))
		}
	}
	slices.Sort(all)
	return all
}

func rank(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

// silent is a store whose PUBLISH is lost.
type silent struct{ cache.Store }

func (silent) Publish(context.Context, string) error { return nil }

// 8 processes with 62 callers each, in one run: the message wakes those who wait, and that shows.
func TestTheMessageWakesThoseWhoWait(t *testing.T) {
	r := open(t, redistest.Start(t).Addr(), func(o *redisstore.Options) { o.Workers = 64 })
	var loaded time.Time
	newLoader := func() *cachetest.Loader {
		return &cachetest.Loader{Answer: func(context.Context, int) (string, error) {
			time.Sleep(250 * time.Millisecond)
			loaded = time.Now()
			return "19.99", nil
		}}
	}
	lock := cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken}
	aside := func(s cache.Store, l cache.Loader) cache.Aside {
		return cache.Aside{Store: s, Backend: l, Probe: cache.NoProbe{}, TTL: time.Minute}
	}
	measure := func(one func(*cachetest.Loader) cache.Strategy) (all []time.Duration) {
		const rounds = 3
		loader := newLoader()
		var instances []cache.Strategy
		for range 8 {
			instances = append(instances, one(loader))
		}
		for range rounds {
			all = append(all, lags(t, r, 62, &loaded, instances)...)
		}
		slices.Sort(all)
		if n := loader.Calls(); n != rounds {
			t.Errorf("%d backend calls in %d rounds", n, rounds)
		}
		return all
	}
	woken := func(s cache.Store) func(*cachetest.Loader) cache.Strategy {
		return func(l *cachetest.Loader) cache.Strategy {
			return &cache.Woken{Aside: aside(s, l), Listener: r.NewListener(), Lock: lock, WaitTimeout: 11 * time.Second}
		}
	}
	rung, mute := measure(woken(r)), measure(woken(silent{r}))
	polled := measure(func(l *cachetest.Loader) cache.Strategy {
		return &cache.Fixed{Aside: aside(r, l), Lock: lock, WaitTimeout: 11 * time.Second}
	})
	t.Logf("p50, p99: woken %v, %v; without messages %v, %v; fixed %v, %v", rank(rung, 0.5), rank(rung, 0.99), rank(mute, 0.5), rank(mute, 0.99),
		rank(polled, 0.5), rank(polled, 0.99))
	if rank(rung, 0.99) > rank(polled, 0.99)/2 {
		t.Errorf("woken's p99 is %v, fixed's %v: want at most half", rank(rung, 0.99), rank(polled, 0.99))
	}
	if rank(mute, 0.5) < 5*rank(rung, 0.5) {
		t.Errorf("the median wait without messages is %v, with them %v: want at least five times as long", rank(mute, 0.5), rank(rung, 0.5))
	}
}
