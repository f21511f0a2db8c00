package cachetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

// A held worker whose request is cancelled leaves, before the fill and while it waits for its turn.
func TestHeldWorkersObeyTheirContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		gate := cachetest.HoldBeforeLock(store, 3)
		left := errors.New("left")
		held := func() (cancel func(), done <-chan error) {
			ctx, stop := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := gate.Lock(ctx, "lock", "held", time.Minute)
				ended <- err
			}()
			synctest.Wait()
			return func() { stop(left) }, ended
		}
		cancel, done := held()
		cancel()
		equal(t, "left before the fill", <-done, left)

		_, first := held()
		cancelSecond, second := held()
		if holder, err := gate.Lock(t.Context(), "lock", "winner", time.Minute); holder != "winner" || err != nil {
			t.Fatal(holder, err)
		}
		if released, err := gate.Unlock(t.Context(), "lock", "winner"); !released || err != nil {
			t.Fatal(released, err)
		}
		synctest.Wait() // one of the two has its turn, and the lock
		select {
		case err := <-first:
			equal(t, "the first's error", err, nil)
			cancelSecond()
			equal(t, "left before its turn", <-second, left)
		case err := <-second:
			equal(t, "the second's error", err, nil)
			if released, err := gate.Unlock(t.Context(), "lock", "held"); !released || err != nil {
				t.Fatal(released, err)
			}
			equal(t, "the first's error", <-first, nil)
		}
	})
}

// A held worker that finds the lock taken gives its turn to the next.
func TestAHeldWorkerWithoutTheLockPassesItsTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		gate := cachetest.HoldBeforeLock(store, 2)
		if _, err := store.Lock(t.Context(), "lock", "another", time.Minute); err != nil {
			t.Fatal(err)
		}
		holders := make(chan string, 2)
		for range 2 {
			go func() {
				holder, _ := gate.Lock(t.Context(), "lock", "held", time.Minute)
				holders <- holder
			}()
		}
		synctest.Wait()
		equal(t, "workers that passed a closed gate", len(holders), 0)
		if released, err := gate.Unlock(t.Context(), "lock", "winner"); released || err != nil { // opens all the same
			t.Fatal(released, err)
		}
		equal(t, "the first's holder", <-holders, "another")
		equal(t, "the second's holder", <-holders, "another")
	})
}

func TestBlindRecheckHidesHitsAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := 0
		store := cachetest.BlindRecheck{Store: cachetest.HoldBeforeLock(cachetest.NewStore(), 1), Hidden: func(context.Context) { hidden++ }}
		loader := &cachetest.Loader{Answer: cachetest.Takes(time.Second, "9.99")}
		results := make(chan *cache.Result, 2)
		for range 2 {
			go func() {
				fixed := &cache.Fixed{
					Aside:       cache.Aside{Store: store, Backend: loader, Probe: cache.NoProbe{}, TTL: time.Minute},
					Lock:        cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken},
					WaitTimeout: time.Minute,
				}
				r, _ := fixed.Get(t.Context(), "key")
				results <- r
			}()
		}
		a, b := <-results, <-results
		equal(t, "calls", a.BackendCalls+b.BackendCalls, 2)
		equal(t, "hidden hits", hidden, 1)
		equal(t, "re-checks that hit", a.Rechecked+b.Rechecked, 0)
	})
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
