package cache_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

const grace = lockTTL + fillTime

func stale(s cache.Store, l cache.Loader) *cache.Stale {
	return &cache.Stale{Fixed: *fixed(s, l), Grace: grace, Delta: deltaOf(fillTime)}
}

// refreshes is a probe that keeps what refreshes came to.
type refreshes struct {
	cache.NoProbe
	mu   sync.Mutex
	done []answer
}

func (p *refreshes) Refresh(ctx context.Context, _ string) (context.Context, func(*cache.Result, error)) {
	return ctx, func(r *cache.Result, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done = append(p.done, answer{*r, err})
	}
}

func TestStaleServesTheOldValueWhileOneRefreshesAndNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		var mu sync.Mutex
		answered := map[string]time.Duration{}   // by value: when the backend gave it
		const fill = fillTime + time.Millisecond // no refresh ends in the instant of a request
		loader := generations(fill)
		store, probe := cachetest.NewStore(), &refreshes{}
		s := stale(store, told{loader, func(value string) {
			mu.Lock()
			defer mu.Unlock()
			answered[value] = time.Since(started)
		}})
		s.Probe = probe
		oldest, refreshed := time.Duration(0), cache.Counts{}
		aged := aging{s, func(value string) {
			mu.Lock()
			defer mu.Unlock()
			oldest = max(oldest, time.Since(started)-answered[value])
		}}
		const rate = 400
		answers := traffic(t.Context(), aged, rate, 60*time.Second)
		synctest.Wait()

		missed := 0
		for i, a := range answers {
			if a.err != nil {
				t.Fatalf("request %d: %v", i, a.err)
			}
			if (a.Misses > 0 || a.Waited > 0) && i > 120 { // the first fill took as long as these
				missed++
			}
		}
		equal(t, "requests that missed or waited after the first fill", missed, 0)
		for _, r := range probe.done {
			equal(t, "a refresh's error", r.err, nil)
			refreshed.Add(r.Counts)
		}
		n := len(probe.done)
		equal(t, "what the refreshes did", refreshed, cache.Counts{Hits: n, Released: n, BackendCalls: n, SetsReplaced: n})
		equal(t, "backend calls beside the first", n, loader.Calls()-1)
		equal(t, "in flight at peak", loader.Peak(), 1)
		if n != 18 { // 60 s / (TTL + fill)
			t.Errorf("%d refreshes in 60 s, want 18", n)
		}
		if overdue, limit := oldest-ttl, fill+time.Second/rate+20*time.Millisecond; overdue > limit || overdue < fill {
			t.Errorf("a value was served %v overdue, want %v to %v", overdue, fill, limit)
		}
	})
}

// told tells of each value when it was answered.
type told struct {
	cache.Loader
	tell func(value string)
}

func (l told) Load(ctx context.Context, key string) (string, error) {
	value, err := l.Loader.Load(ctx, key)
	if err == nil {
		l.tell(value)
	}
	return value, err
}

// aging tells of each value when it is served.
type aging struct {
	cache.Strategy
	served func(value string)
}

func (a aging) Get(ctx context.Context, key string) (*cache.Result, error) {
	result, err := a.Strategy.Get(ctx, key)
	a.served(result.Value)
	return result, err
}

// cold fills the key, and lets the value get past its TTL.
func cold(t *testing.T, s cache.Strategy) {
	t.Helper()
	if _, err := s.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl + time.Second)
}

func TestARefreshOutlivesTheRequestThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &refreshes{}
		s := stale(store, generations(fillTime))
		s.Probe = probe
		cold(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		result, err := s.Get(ctx, key)
		cancel()
		equal(t, "error", err, nil)
		equal(t, "value", result.Value, "answer 1")
		equal(t, "outcome", result.Outcome, cache.Hit)
		equal(t, "counts of the request", result.Counts, cache.Counts{Hits: 1, Acquired: 1})
		time.Sleep(2 * fillTime)
		synctest.Wait()
		equal(t, "cached", store.Peek(key), "answer 2")
		equal(t, "refreshes", len(probe.done), 1)
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

func TestARefreshIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &refreshes{}
		s := stale(store, &cachetest.Loader{Answer: func(ctx context.Context, n int) (string, error) {
			if n == 1 {
				return "answer 1", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}})
		s.Probe = probe
		cold(t, s)
		if _, err := s.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(patience + time.Millisecond)
		synctest.Wait()
		if len(probe.done) != 1 || !errors.Is(probe.done[0].err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v, want one that ran out of time", patience, probe.done)
		}
	})
}

// A refresh takes longer than its lock lives; another refreshes meanwhile. The late value is not stored over the newer one, and
// that is counted.
func TestALateRefreshIsRefusedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &refreshes{}
		loader := &cachetest.Loader{Answer: func(ctx context.Context, n int) (string, error) {
			took := fillTime
			if n == 2 {
				took = 2 * time.Second
			}
			return cachetest.Takes(took, []string{"answer 1", "answer 2", "answer 3"}[n-1])(ctx, n)
		}}
		s := stale(store, loader)
		s.Probe, s.Lock.TTL = probe, time.Second
		cold(t, s)
		for range 2 {
			if _, err := s.Get(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "cached", store.Peek(key), "answer 3")
		equal(t, "refreshes", len(probe.done), 2)
		equal(t, "the first", probe.done[0].Counts, cache.Counts{Hits: 1, Released: 1, BackendCalls: 1, SetsReplaced: 1})
		equal(t, "the late one", probe.done[1].Counts, cache.Counts{Hits: 1, Lost: 1, BackendCalls: 1, SetsLate: 1})
	})
}

func TestAPanicInTheBackgroundIsAnErrorThatHoldsTheStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &refreshes{}
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			if n == 2 {
				panic("out of paper")
			}
			return "answer", nil
		}}
		s := stale(store, loader)
		s.Probe, s.Delta = probe, func(string) (time.Duration, bool) { return fillTime, true }
		cold(t, s)
		for range 2 {
			if _, err := s.Get(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		equal(t, "refreshes", len(probe.done), 2)
		if err := probe.done[0].err; err == nil || !strings.Contains(err.Error(), "out of paper") || !strings.Contains(err.Error(), "stale_test.go") {
			t.Errorf("got %v", err)
		}
		equal(t, "the next one's error", probe.done[1].err, nil)
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

// In the grace time without requests the value goes: then all wait for one call, as in fixed.
func TestAColdKeyOfStaleIsFilledAsInFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := generations(fillTime)
		s := stale(cachetest.NewStore(), loader)
		for n := 1; n <= 2; n++ {
			answers, sum := stampede(t.Context(), s, 50)
			equal(t, "backend calls", loader.Calls(), n)
			equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
			equal(t, "released", sum.Released, sum.Acquired)
			equal(t, "waited or hit", outcomes(answers)[cache.Waited]+outcomes(answers)[cache.Hit], 49)
			time.Sleep(ttl + grace)
		}
	})
}

// A refresher takes the lock and is gone. Within the grace time nobody waits; when its lock ends another refreshes.
func TestADeadRefresherMakesNobodyWaitWithinTheGraceTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, loader := cachetest.NewStore(), generations(fillTime)
		s := stale(store, loader)
		s.Grace += 2 * time.Second // one has passed when the lock is taken
		cold(t, s)
		if _, err := store.Lock(t.Context(), cache.LockKey(key), "dead", lockTTL); err != nil {
			t.Fatal(err)
		}
		for i, a := range traffic(t.Context(), s, 50, lockTTL+fillTime+100*time.Millisecond) {
			if a.err != nil || a.Misses > 0 || a.Waited > 0 {
				t.Fatalf("request %d: %+v, %v", i, a.Result, a.err)
			}
		}
		synctest.Wait()
		equal(t, "backend calls", loader.Calls(), 2)
		equal(t, "cached", store.Peek(key), "answer 2")
	})
}
