package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

const (
	outageRound = 2
	outage      = 700 * time.Millisecond
)

func lostRedis() Drill {
	return Drill{
		Name:  "lost-redis",
		Short: "Redis stops in the middle and comes back: errors, no call without the lock, and the run goes on",
		Long: `Round 2: Redis stops while the winner's backend call runs, and comes back 700 ms later, empty. The winner has its
value, but can neither store it nor unlock; the waiters fail after three errors each. Nobody calls the backend instead.
Round 3 is clean. The drill starts a redis-server of its own for this; without one it uses the embedded server.`,
		Settings: map[string]string{"rounds": "3", "ttl": "1s"},
		Owns:     One,
		Start:    startLostRedis,
	}
}

func startLostRedis(s Scene) Faults {
	var tries perRound
	var back sync.WaitGroup
	var startErr error
	return Faults{
		Loader: func(next cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, key string) (string, error) {
				if tries.add(ctx) > 1 || herd.WorkerFrom(ctx).Round != outageRound {
					return next.Load(ctx, key)
				}
				s.Report(ctx, fmt.Sprintf("Redis stops, for %v", outage))
				if err := s.Redis.Stop(); err != nil {
					return "", fmt.Errorf("stop Redis: %w", err)
				}
				back.Go(func() {
					_ = cache.Sleep(ctx, outage) // interrupted or not, it comes back
					startErr = s.Redis.Start(context.WithoutCancel(ctx))
					s.Report(ctx, "Redis is back, empty")
				})
				return next.Load(ctx, key)
			})
		},
		Close: func() error {
			back.Wait()
			return startErr
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			r := round(l, outageRound)
			text := fmt.Sprintf("Redis was away for %v: %d of %d workers failed, %d store errors, %d backend call with the lock and none without; the next round was clean",
				outage, r.Outcomes[cache.Failed], r.Workers, r.StoreErrors, r.BackendCalls)
			return verdict(l, text, tookPlace(l, outageRound+1),
				expect(r.BackendCalls == 1 && r.Acquired == 1, "%d calls and %d locks in the outage", r.BackendCalls, r.Acquired),
				expect(r.Outcomes[cache.Failed] == r.Workers-1 && r.Outcomes[cache.Filled] == 1, "%d failed and %d filled",
					r.Outcomes[cache.Failed], r.Outcomes[cache.Filled]),
				expect(r.StoreErrors >= r.Workers-1 && r.SetsUnanswered == 1 && r.ReleasesUnanswered == 1 && r.Expiries == 0,
					"%d store errors, %d SETs and %d releases without an answer, %d fills stored", r.StoreErrors, r.SetsUnanswered, r.ReleasesUnanswered, r.Expiries),
				expect(l.BackendCalls == l.Acquired-l.Rechecked, "%d calls with %d locks", l.BackendCalls, l.Acquired-l.Rechecked),
				clean(l, outageRound-1), clean(l, outageRound+1))
		},
	}
}
