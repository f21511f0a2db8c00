package drill

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func coldStart() Drill {
	return Drill{
		Name:  "cold-start",
		Short: "the key was never cached: one call, as after an expiry",
		Long: `Each round asks for a key that has never been in Redis, as after a deployment or a flush. A cache that is protected
by early refresh or by serving the stale value has nothing to serve here. The fill lock does not care: one call.`,
		Settings: map[string]string{"rounds": "3"},
		Start:    func(s Scene) Faults { return startColdStart(s) },
	}
}

func startColdStart(s Scene) Faults {
	never := strings.ToLower(rand.Text()[:8])
	var asked perRound
	return Faults{
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				key = fmt.Sprintf("%s:%s:%d", key, never, herd.WorkerFrom(ctx).Round)
				if asked.add(ctx) == 1 {
					s.Report(ctx, fmt.Sprintf("the key %q has never been cached", key))
				}
				return next.Get(ctx, key)
			})
		}),
		Judge: func(l herd.Ledger) herd.Verdict {
			checks := []check{expect(len(l.ByRound) == s.Rounds, "that takes %d rounds", s.Rounds)}
			for n := range s.Rounds {
				checks = append(checks, clean(l, n+1))
			}
			return verdict(l, fmt.Sprintf("%d keys that were never cached, %d workers each, one call each", l.Rounds, l.Workers), checks...)
		},
	}
}
