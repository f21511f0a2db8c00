package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func flush() Drill {
	return Drill{
		Name:  "flush",
		Short: "Redis is emptied in mid-traffic (FLUSHALL): stale has nothing to serve, so all wait for one call",
		Long: `Values are refreshed before anybody needs them, and nobody waits, until somebody empties Redis. Serving the stale value
is no help then: there is none. What is left is the fill lock: all wait for one call, and after it nobody waits again.`,
		Mode:    "stale",
		Traffic: true,
		Settings: map[string]string{"workers": "20", "rate": "300", "for": "8s", "ttl": "2s", "lock-ttl": "2s", "backend-latency": "250ms",
			"backend-jitter": "0", "quiet": "true"},
		Owns:  One,
		Start: startFlush,
	}
}

// emptied is a Redis that is emptied once. It watches who misses then.
type emptied struct {
	cache.Store
	scene Scene

	mu     sync.Mutex // guards all below
	fills  int
	stored time.Time // when the latest was stored
	done   bool      // it was emptied
	err    error     // it could not be

	// Of the requests that missed after it:
	calls, waiters int
	longest        time.Duration // that one waited
}

func (e *emptied) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	stored, err := e.Store.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fills, e.stored = e.fills+1, time.Now()
	return stored, err
}

// isDue says once that it is time: after a refresh, and before the next has begun, but late enough for a call of its own.
func (e *emptied) isDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	age := time.Since(e.stored)
	if e.done || e.fills < 2 || age < e.scene.ValueTTL*3/4 || age >= e.scene.ValueTTL {
		return false
	}
	e.done = true
	return true
}

func (e *emptied) empty(ctx context.Context) {
	e.scene.Report(ctx, "FLUSHALL: Redis is empty, in mid-traffic")
	err := e.scene.Flush(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func (e *emptied) watch(result *cache.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done && result.Misses > 0 {
		e.calls += result.BackendCalls
		e.longest = max(e.longest, result.Waited)
		if result.Outcome == cache.Waited {
			e.waiters++
		}
	}
}

func startFlush(s Scene) Faults {
	redis := &emptied{scene: s}
	return Faults{
		Store: func(next cache.Store) cache.Store {
			redis.Store = next
			return redis
		},
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				if redis.isDue() {
					redis.empty(ctx)
				}
				result, err := next.Get(ctx, key)
				redis.watch(result)
				return result, err
			})
		}),
		Judge: func(l herd.Ledger) herd.Verdict {
			return verdict(l, fmt.Sprintf("Redis was emptied in mid-traffic: %d requests waited up to %v for %s", redis.waiters,
				redis.longest.Round(time.Millisecond), herd.Count(redis.calls, "call")),
				expect(redis.err == nil, "it was not emptied: %v", redis.err),
				expect(redis.done, "it was not emptied: that takes three TTLs of traffic"),
				expect(redis.calls == 1 && redis.waiters > 1, "%d calls, and %d waited", redis.calls, redis.waiters),
				expect(l.Expiries == 2 && l.BackendCalls > l.Expiries, "there were %d cycles and %d refreshes, not 2 and more than none", l.Expiries,
					l.BackendCalls-l.Expiries),
				expect(l.Redundant+l.Repeated == 0, "%d calls were redundant, %d repeated", l.Redundant, l.Repeated),
				expect(l.Outcomes[cache.Failed] == 0 && l.Lost == 0, "%d requests failed and %d locks were lost", l.Outcomes[cache.Failed], l.Lost))
		},
	}
}
