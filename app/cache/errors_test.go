package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

var (
	errReset   = errors.New("connection reset")
	errRefused = fmt.Errorf("OOM: %w", cache.ErrRefused)
)

// flaky is a store whose replies get lost: the command is executed, the caller gets an error. Each method loses
// as many replies as its number says.
type flaky struct {
	*cachetest.Store
	get, recheck, poll, set, lock, unlock, both int
	refuses                                     bool // SET and the release, instead of losing their replies
}

func lose(n *int) error {
	if *n > 0 {
		*n--
		return errReset
	}
	return nil
}

func (f *flaky) Get(ctx context.Context, key string) (string, bool, error) {
	value, found, err := f.Store.Get(ctx, key)
	lost := map[cache.Read]*int{cache.First: &f.get, cache.Recheck: &f.recheck, cache.Poll: &f.poll}[cache.ReadOf(ctx)]
	return value, found, errors.Join(err, lose(lost))
}

func (f *flaky) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	if f.refuses && lose(&f.set) != nil {
		return "", false, errRefused
	}
	replaced, found, err := f.Store.Set(ctx, key, value, ttl)
	return replaced, found, errors.Join(err, lose(&f.set))
}

func (f *flaky) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := f.Store.Lock(ctx, key, token, ttl)
	if lost := lose(&f.lock); lost != nil {
		return "", lost
	}
	return holder, err
}

func (f *flaky) Unlock(ctx context.Context, key, token string) (bool, error) {
	if f.refuses && lose(&f.unlock) != nil {
		return false, errRefused
	}
	released, err := f.Store.Unlock(ctx, key, token)
	if lost := lose(&f.unlock); lost != nil {
		return false, lost
	}
	return released, err
}

func (f *flaky) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	if f.refuses && lose(&f.both) != nil {
		return cache.Stored{}, errRefused
	}
	stored, err := f.Store.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	if lost := lose(&f.both); lost != nil {
		return cache.Stored{}, lost
	}
	return stored, err
}

func TestStoreErrors(t *testing.T) {
	tests := []struct {
		name    string
		store   flaky
		others  bool // the lock is held by another for the first 50 ms
		want    cache.Counts
		outcome cache.Outcome
		err     error
	}{
		{
			name:    "a failed GET is no miss",
			store:   flaky{get: 1},
			want:    cache.Counts{StoreErrors: 1},
			outcome: cache.Failed,
			err:     errReset,
		},
		{
			name:    "a failed re-check is no miss, and the lock is given back",
			store:   flaky{recheck: 1},
			want:    cache.Counts{Misses: 1, Acquired: 1, Released: 1, StoreErrors: 1},
			outcome: cache.Failed,
			err:     errReset,
		},
		{
			name:    "a lost reply to SET NX PX: the own token means acquired",
			store:   flaky{lock: 1},
			want:    cache.Counts{Misses: 3, Polls: 1, Acquired: 1, Released: 1, StoreErrors: 1, Tolerated: 1, BackendCalls: 1, SetsAbsent: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a lock that never answers is given back in case it is ours",
			store:   flaky{lock: 3},
			want:    cache.Counts{Misses: 3, Polls: 2, Acquired: 1, Released: 1, StoreErrors: 3, Tolerated: 2},
			outcome: cache.Failed,
			err:     errReset,
		},
		{
			name:    "a release that is sent again is not lost",
			store:   flaky{unlock: 1},
			want:    cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, Tolerated: 1, BackendCalls: 1, SetsAbsent: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a release that never answers is counted",
			store:   flaky{unlock: 3},
			want:    cache.Counts{Misses: 2, Acquired: 1, ReleasesUnanswered: 1, StoreErrors: 3, BackendCalls: 1, SetsAbsent: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a failed SET costs the cache, not the caller",
			store:   flaky{set: 1},
			want:    cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, SetsUnanswered: 1, BackendCalls: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a refused SET is known not to have ended the cycle",
			store:   flaky{set: 1, refuses: true},
			want:    cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, SetsRefused: 1, BackendCalls: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a refused release is not sent again, and its lock stays",
			store:   flaky{unlock: 3, refuses: true},
			want:    cache.Counts{Misses: 2, Acquired: 1, ReleasesRefused: 1, StoreErrors: 1, BackendCalls: 1, SetsAbsent: 1},
			outcome: cache.Filled,
		},
		{
			name:    "a waiter tolerates one lost poll",
			store:   flaky{poll: 1},
			others:  true,
			want:    cache.Counts{Hits: 1, Misses: 1, Polls: 2, Held: 1, StoreErrors: 1, Tolerated: 1},
			outcome: cache.Waited,
		},
		{
			name:    "a waiter does not tolerate a store that is down",
			store:   flaky{poll: 1000},
			others:  true,
			want:    cache.Counts{Misses: 1, Polls: 3, Held: 1, StoreErrors: 3, Tolerated: 2},
			outcome: cache.Failed,
			err:     errReset,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.store.Store = cachetest.NewStore()
				if test.others {
					fillByAnother(t, test.store.Store)
				}
				loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
				result, err := fixed(&test.store, loader).Get(t.Context(), key)

				equal(t, "counts", result.Counts, test.want)
				equal(t, "outcome", result.Outcome, test.outcome)
				equal(t, "backend calls", loader.Calls(), test.want.BackendCalls)
				if !errors.Is(err, test.err) || (test.err == nil) != (err == nil) {
					t.Errorf("error: got %v, want %v", err, test.err)
				}
				if err == nil {
					equal(t, "value", result.Value, "9.99")
				}
				if test.want.ReleasesRefused == 0 && !test.others {
					equal(t, "lock afterwards", test.store.Peek(cache.LockKey(key)), "")
				}
			})
		})
	}
}

// fillByAnother holds the lock, and fills after 5 ms: before a waiter's first poll.
func fillByAnother(t *testing.T, store *cachetest.Store) {
	if _, err := store.Lock(t.Context(), cache.LockKey(key), "another", time.Hour); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Millisecond, func() {
		if _, _, err := store.Set(t.Context(), key, "9.99", ttl); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelledWaiterGivesBackALockThatMayBeItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: cachetest.NewStore(), lock: 1}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // in the first pause
		defer cancel()
		_, err := fixed(store, nil).Get(ctx, key)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

func TestBrokenReturnsAStoreErrorWithoutABackendCall(t *testing.T) {
	loader := &cachetest.Loader{Answer: cachetest.Takes(0, "9.99")}
	result, err := broken(&flaky{Store: cachetest.NewStore(), get: 1}, loader).Get(t.Context(), key)
	if !errors.Is(err, errReset) {
		t.Errorf("got %v, want the store's error", err)
	}
	equal(t, "counts", result.Counts, cache.Counts{StoreErrors: 1})
	equal(t, "backend calls", loader.Calls(), 0)
}

func TestJitterSpreadsTheTTL(t *testing.T) {
	recorder := &setTTLs{Store: cachetest.NewStore()}
	b := broken(recorder, &cachetest.Loader{Answer: cachetest.Takes(0, "9.99")})
	b.TTLJitter = 0.2
	for range 1000 {
		recorder.Store = cachetest.NewStore()
		if _, err := b.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	low, high := ttl, ttl
	for _, d := range recorder.ttls {
		low, high = min(low, d), max(high, d)
	}
	// 1000 draws from 2.4 s to 3.6 s: that none falls into an outer tenth has a chance of 0.95^1000.
	if low < 2400*time.Millisecond || low > 2460*time.Millisecond || high > 3600*time.Millisecond || high < 3540*time.Millisecond {
		t.Errorf("TTLs from %v to %v, want 2.4 s to 3.6 s", low, high)
	}
}

type setTTLs struct {
	cache.Store
	ttls []time.Duration
}

func (s *setTTLs) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	s.ttls = append(s.ttls, ttl)
	return s.Store.Set(ctx, key, value, ttl)
}
