package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

const slowFillRounds = 3

func slowFill() Drill {
	return Drill{
		Name:  "slow-fill",
		Short: "the lock's TTL (300 ms) is shorter than the fill (1 s): fills overlap, and each late DEL is refused",
		Long: `The lock expires in the middle of the fill, so the next waiter takes over, and the next. Several fills of one cycle
run at once. A late winner's DEL is refused, because its token is no longer in the lock: the next winner's lock survives.`,
		Settings: map[string]string{"workers": "30", "rounds": "3", "ttl": "2s", "lock-ttl": "300ms", "backend-latency": "1s",
			"backend-jitter": "0"},
		Start: startSlowFill,
	}
}

// lateness watches locks that outlive their TTL.
type lateness struct {
	cache.Store
	scene Scene

	mu       sync.Mutex
	newest   string    // token of the latest lock
	taken    time.Time // before that: it lives at least until its TTL has passed since
	survived int       // refused DELs beside which the next winner's lock was seen
	harmed   int       // those beside which it was gone before its time
}

func (l *lateness) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	asked := time.Now()
	holder, err := l.Store.Lock(ctx, key, token, ttl)
	if err == nil && holder == token {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.newest, l.taken = token, asked
	}
	return holder, err
}

// Unlock looks at the lock after a DEL that was refused.
func (l *lateness) Unlock(ctx context.Context, key, token string) (bool, error) {
	l.mu.Lock() // what is known before: a lock that is taken from now on proves nothing
	newest, taken := l.newest, l.taken
	if newest == token {
		l.newest = "" // given back by its owner
	}
	l.mu.Unlock()
	released, err := l.Store.Unlock(ctx, key, token)
	if err != nil || released {
		return released, err
	}
	left, ttlErr := l.scene.TTL(ctx, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch age := time.Since(taken); {
	case newest == token || ttlErr != nil:
		l.scene.Report(ctx, "the fill took longer than the lock's TTL: DEL refused, the lock had expired")
	case left > 0:
		l.survived++
		l.scene.Report(ctx, fmt.Sprintf("the fill took longer than the lock's TTL: DEL refused, the next winner's lock lives on for %v", left))
	case newest == l.newest && newest != "" && age < l.scene.LockTTL-5*time.Millisecond: // the clock of the embedded Redis has ticks
		l.harmed++
		l.scene.Report(ctx, "DEL refused, and yet the next winner's lock is gone")
	default:
		l.scene.Report(ctx, "the fill took longer than the lock's TTL: DEL refused, all locks had expired")
	}
	return released, err
}

func startSlowFill(s Scene) Faults {
	late := &lateness{scene: s}
	watch := newCalls()
	return Faults{
		Store: func(next cache.Store) cache.Store {
			late.Store = next
			return late
		},
		Loader: watch.around,
		Judge: func(l herd.Ledger) herd.Verdict {
			// After each TTL one more may take over, until the first fill is there.
			limit := 1 + int((s.Latency-1)/s.LockTTL)
			checks, overlap := []check{tookPlace(l, slowFillRounds),
				expect(s.LockTTL < s.Latency, "the lock's TTL of %v is longer than the fill of %v", s.LockTTL, s.Latency)}, 0
			for n := range slowFillRounds {
				r := round(l, n+1)
				overlap = max(overlap, watch.peak(n+1))
				checks = append(checks,
					expect(r.BackendCalls >= 2 && r.BackendCalls <= limit, "%d calls in round %d, not 2 to %d", r.BackendCalls, n+1, limit),
					expect(watch.peak(n+1) >= 2, "fills did not overlap in round %d", n+1),
					expect(r.Expiries == 1, "%d cycles in round %d", r.Expiries, n+1))
			}
			checks = append(checks,
				expect(l.Outcomes[cache.Failed] == 0, "%d requests failed", l.Outcomes[cache.Failed]),
				expect(l.Lost >= l.BackendCalls && l.Acquired == l.Released+l.Lost, "%d locks lost, %d acquired, %d released", l.Lost, l.Acquired, l.Released),
				expect(late.survived > 0 && late.harmed == 0, "the next winner's lock was seen to survive %d times, and gone %d times",
					late.survived, late.harmed))
			return verdict(l, fmt.Sprintf("up to %d fills overlapped, %d late DELs were refused, the next winner's lock survived %d of them",
				overlap, l.Lost, late.survived), checks...)
		},
	}
}
