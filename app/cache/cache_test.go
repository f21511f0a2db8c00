package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

const (
	key      = "product:42:price"
	fillTime = 250 * time.Millisecond
	ttl      = 3 * time.Second
	lockTTL  = 10 * time.Second
	patience = 11500 * time.Millisecond
)

func aside(s cache.Store, l cache.Loader) cache.Aside {
	return cache.Aside{Store: s, Backend: l, Probe: cache.NoProbe{}, TTL: ttl}
}

func broken(s cache.Store, l cache.Loader) *cache.Broken { return &cache.Broken{Aside: aside(s, l)} }

func fixed(s cache.Store, l cache.Loader) *cache.Fixed {
	return &cache.Fixed{
		Aside:       aside(s, l),
		Lock:        cache.FillLock{TTL: lockTTL, NewToken: cache.RandomToken},
		WaitTimeout: patience,
	}
}

type answer struct {
	cache.Result
	err error
}

// stampede sends n requests at the same instant and returns their answers and the sum of the counts.
func stampede(ctx context.Context, s cache.Strategy, n int) ([]answer, cache.Counts) {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			result, err := s.Get(ctx, key)
			answers[i] = answer{*result, err}
		})
	}
	wg.Wait()
	var sum cache.Counts
	for _, a := range answers {
		sum.Add(a.Counts)
	}
	return answers, sum
}

func outcomes(answers []answer) map[cache.Outcome]int {
	m := map[cache.Outcome]int{}
	for _, a := range answers {
		m[a.Outcome]++
	}
	return m
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestBrokenCallsTheBackendOncePerMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, loader := cachetest.NewStore(), &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		answers, sum := stampede(t.Context(), broken(store, loader), 50)

		equal(t, "backend calls", loader.Calls(), 50)
		equal(t, "in flight at peak", loader.Peak(), 50)
		equal(t, "counts", sum, cache.Counts{Misses: 50, BackendCalls: 50, SetsAbsent: 1, SetsReplaced: 49})
		equal(t, "filled", outcomes(answers)[cache.Filled], 50)
		equal(t, "value", answers[49].Value, "9.99")

		again, sum := stampede(t.Context(), broken(store, loader), 50)
		equal(t, "counts while cached", sum, cache.Counts{Hits: 50})
		equal(t, "hit", outcomes(again)[cache.Hit], 50)
	})
}

func TestFixedCallsTheBackendOnceFor10000Workers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, loader := cachetest.NewStore(), &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		answers, sum := stampede(t.Context(), fixed(store, loader), 10_000)

		equal(t, "backend calls", loader.Calls(), 1)
		equal(t, "counted calls", sum.BackendCalls, 1)
		equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
		equal(t, "acquired", sum.Acquired, sum.Rechecked+1)
		equal(t, "released", sum.Released, sum.Acquired)
		equal(t, "lost", sum.Lost, 0)
		equal(t, "filled", outcomes(answers)[cache.Filled], 1)
		equal(t, "waited or hit", outcomes(answers)[cache.Waited]+outcomes(answers)[cache.Hit], 9_999)
		for i, a := range answers {
			if a.err != nil || a.Value != "9.99" {
				t.Fatalf("worker %d got %q, %v", i, a.Value, a.err)
			}
		}
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

func TestValuesOfAnyBytesAreCachedTheEmptyOneToo(t *testing.T) {
	for _, value := range []string{"", "\x00\xff\r\n$-1\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, value)}
			answers, sum := stampede(t.Context(), fixed(cachetest.NewStore(), loader), 3)
			equal(t, "backend calls", sum.BackendCalls, 1)
			for _, a := range answers {
				equal(t, "value", a.Value, value)
				equal(t, "error", a.err, nil)
			}
		})
	}
}

func TestFillLongerThanTheLockOverlapsAndIsCountedAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			time.Sleep(time.Second)
			return fmt.Sprint(n), nil
		}}
		f := fixed(store, loader)
		f.Lock.TTL = 600 * time.Millisecond

		_, sum := stampede(t.Context(), f, 10)
		equal(t, "backend calls", sum.BackendCalls, 2) // the second winner took over after 600 ms
		equal(t, "peak", loader.Peak(), 2)
		equal(t, "lost", sum.Lost, 2) // neither was done in time
		equal(t, "released", sum.Released, 0)
		equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
	})
}

func TestLateWinnerLeavesTheNextWinnersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		lock := cache.LockKey(key)
		loader := &cachetest.Loader{Answer: func(context.Context, int) (string, error) {
			time.Sleep(2 * lockTTL) // A's lock expires
			if holder, err := store.Lock(t.Context(), lock, "B's token", time.Hour); holder != "B's token" || err != nil {
				t.Errorf("B did not get the lock: %q, %v", holder, err)
			}
			return "A's", nil
		}}
		result, err := fixed(store, loader).Get(t.Context(), key)
		equal(t, "error", err, nil)
		equal(t, "lost", result.Lost, 1)
		equal(t, "released", result.Released, 0)
		equal(t, "lock after A's release", store.Peek(lock), "B's token")
	})
}

func TestDeadWinnerCostsOneTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		// The winner took the lock and is gone, with its call.
		if _, err := store.Lock(t.Context(), cache.LockKey(key), "dead", lockTTL); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		answers, sum := stampede(t.Context(), fixed(store, loader), 50)

		equal(t, "backend calls beside the dead one's", sum.BackendCalls, 1)
		equal(t, "in flight at peak", loader.Peak(), 1)
		equal(t, "errors", outcomes(answers)[cache.Failed], 0)
		equal(t, "timeouts", sum.Timeouts, 0)
		// 100 ms: the age of the last lock attempt; 100 ms: the longest pause; then the fill and a last pause.
		if took, limit := time.Since(started), lockTTL+300*time.Millisecond+fillTime; took < lockTTL || took > limit {
			t.Errorf("took %v, want %v to %v", took, lockTTL, limit)
		}
	})
}

func TestLateLockFindsTheFillOnTheRecheck(t *testing.T) {
	for _, k := range []int{1, 7} {
		synctest.Test(t, func(t *testing.T) {
			store := cachetest.NewStore()
			loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
			answers, sum := stampede(t.Context(), fixed(cachetest.HoldBeforeLock(store, k), loader), 50)

			equal(t, "backend calls", sum.BackendCalls, 1)
			equal(t, "re-checks that hit", sum.Rechecked, k)
			equal(t, "acquired", sum.Acquired, k+1)
			equal(t, "released", sum.Released, k+1)
			equal(t, "hit", outcomes(answers)[cache.Hit], k)
		})
	}
}

func TestWithoutTheRecheckEachHeldWorkerCallsTheBackend(t *testing.T) {
	for _, k := range []int{1, 7} {
		synctest.Test(t, func(t *testing.T) {
			store := cachetest.NewStore()
			loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
			blind := cachetest.BlindRecheck{Store: cachetest.HoldBeforeLock(store, k)}
			_, sum := stampede(t.Context(), fixed(blind, loader), 50)

			equal(t, "backend calls", sum.BackendCalls, k+1)
			equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
		})
	}
}

func TestWaitersDoNotPollInStepAndPollBoundedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 500
		recorder := &pollTimes{Store: cachetest.NewStore(), at: map[time.Duration]int{}, started: time.Now()}
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		answers, sum := stampede(t.Context(), fixed(recorder, loader), workers)

		for _, a := range answers {
			// In 250 ms: pauses of at least 10, 15, 22.5 and then 25 ms.
			if a.Polls > 12 {
				t.Errorf("a waiter polled %d times, want at most 12", a.Polls)
			}
		}
		most := 0
		for _, n := range recorder.at {
			most = max(most, n)
		}
		// In step, all 499 would poll in the same millisecond. Evenly spread over the first pause's 10 ms it
		// would be 50.
		if most > 100 {
			t.Errorf("%d of %d polls in one millisecond: the waiters are in step", most, sum.Polls)
		}
	})
}

type pollTimes struct {
	cache.Store
	started time.Time
	mu      sync.Mutex
	at      map[time.Duration]int // polls, by millisecond
}

func (p *pollTimes) Get(ctx context.Context, key string) (string, bool, error) {
	if cache.ReadOf(ctx) == cache.Poll {
		p.mu.Lock()
		p.at[time.Since(p.started).Truncate(time.Millisecond)]++
		p.mu.Unlock()
	}
	return p.Store.Get(ctx, key)
}

func TestPausesStayWithinTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		var polls []time.Duration
		recorder := getHook{cachetest.NewStore(), func(ctx context.Context) {
			if cache.ReadOf(ctx) == cache.Poll {
				polls = append(polls, time.Since(started))
			}
		}}
		if _, err := recorder.Lock(t.Context(), cache.LockKey(key), "another", time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := fixed(recorder, nil).Get(t.Context(), key); !errors.Is(err, cache.ErrWaitTimeout) {
			t.Fatalf("got %v, want the wait timeout", err)
		}
		last := time.Duration(0)
		for i, at := range polls {
			low, high := 25*time.Millisecond, 50*time.Millisecond
			switch {
			case i == 0:
				low, high = 10*time.Millisecond, 20*time.Millisecond
			case i == 1:
				low, high = 15*time.Millisecond, 30*time.Millisecond
			case i == 2:
				low, high = 22*time.Millisecond, 45*time.Millisecond
			case last > time.Second:
				high = 100 * time.Millisecond
			}
			if pause := at - last; pause < low || pause > high+time.Microsecond {
				t.Errorf("pause %d at %v was %v, want %v to %v", i, last, pause, low, high)
			}
			last = at
		}
	})
}

type getHook struct {
	cache.Store
	hook func(context.Context)
}

func (g getHook) Get(ctx context.Context, key string) (string, bool, error) {
	g.hook(ctx)
	return g.Store.Get(ctx, key)
}

func TestWaitersPastTheirLimitGetANamedErrorAndNeverCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		if _, err := store.Lock(t.Context(), cache.LockKey(key), "another", time.Hour); err != nil {
			t.Fatal(err)
		}
		answers, sum := stampede(t.Context(), fixed(store, loader), 50)

		equal(t, "backend calls", loader.Calls(), 0)
		equal(t, "timeouts", sum.Timeouts, 50)
		equal(t, "errors", outcomes(answers)[cache.Failed], 50)
		ends := map[time.Duration]int{}
		for _, a := range answers {
			if !errors.Is(a.err, cache.ErrWaitTimeout) {
				t.Errorf("got %v, want ErrWaitTimeout", a.err)
			}
			ends[a.Waited.Truncate(time.Millisecond)]++
			if a.Waited < patience || a.Waited > patience+100*time.Millisecond {
				t.Errorf("gave up after %v, want %v", a.Waited, patience)
			}
		}
		if len(ends) < 10 {
			t.Errorf("50 waiters gave up in %d different milliseconds: they are in step", len(ends))
		}
		equal(t, "the other's lock", store.Peek(cache.LockKey(key)), "another")
	})
}

func TestTokensAreRandomForEachAttempt(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := cache.RandomToken(t.Context())
		if len(token) < 26 || seen[token] { // 26 base32 characters are 130 bits
			t.Fatalf("token %q is short or was seen before", token)
		}
		seen[token] = true
	}

	tokens := &lockTokens{Store: cachetest.NewStore()}
	loader := &cachetest.Loader{Answer: cachetest.Takes(0, "9.99")}
	for range 3 {
		if _, err := fixed(tokens, loader).Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		tokens.Store = cachetest.NewStore()
	}
	if len(tokens.sent) != 3 || tokens.sent[0] == tokens.sent[1] || tokens.sent[1] == tokens.sent[2] {
		t.Errorf("tokens of three fills: %q", tokens.sent)
	}
}

type lockTokens struct {
	cache.Store
	sent []string
}

func (l *lockTokens) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	l.sent = append(l.sent, token)
	return l.Store.Lock(ctx, key, token, ttl)
}

func TestCancelledWinnerStillUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		ctx, cancel := context.WithTimeout(t.Context(), fillTime/2)
		defer cancel()
		result, err := fixed(store, loader).Get(ctx, key)

		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		equal(t, "outcome", result.Outcome, cache.Failed)
		equal(t, "released", result.Released, 1)
		equal(t, "lock", store.Peek(cache.LockKey(key)), "")
		equal(t, "store errors", result.StoreErrors, 0)
	})
}

func TestCancelledWaiterLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		if _, err := store.Lock(t.Context(), cache.LockKey(key), "another", time.Hour); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started := time.Now()
		_, err := fixed(store, nil).Get(ctx, key)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		equal(t, "time", time.Since(started), time.Second)
	})
}

func TestFailedFillsFollowEachOtherOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		down := errors.New("down")
		loader := &cachetest.Loader{Answer: func(context.Context, int) (string, error) {
			time.Sleep(fillTime)
			return "", down
		}}
		answers, sum := stampede(t.Context(), fixed(store, loader), 20)

		equal(t, "in flight at peak", loader.Peak(), 1)
		equal(t, "backend calls", sum.BackendCalls, 20) // each worker once
		equal(t, "backend errors", sum.BackendErrors, 20)
		equal(t, "released", sum.Released, 20)
		for _, a := range answers {
			if !errors.Is(a.err, down) {
				t.Errorf("got %v, want the backend's error", a.err)
			}
		}
	})
}

func TestAfterAFailedFillTheNextWaiterTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			time.Sleep(fillTime)
			if n == 1 {
				return "", errors.New("down")
			}
			return "9.99", nil
		}}
		answers, sum := stampede(t.Context(), fixed(cachetest.NewStore(), loader), 50)
		equal(t, "backend calls", sum.BackendCalls, 2)
		equal(t, "errors", outcomes(answers)[cache.Failed], 1)
		equal(t, "filled", outcomes(answers)[cache.Filled], 1)
		equal(t, "waited", outcomes(answers)[cache.Waited], 48)
	})
}
