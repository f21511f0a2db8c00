package drill

import (
	"context"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// processes is how many instances of a strategy a drill has that shows what passes between processes.
const processes = 8

// instances make a strategy of several, each with flights and a subscription of its own, as processes have. The workers are dealt
// out to them.
func instances(make func(ttlJitter float64) cache.Strategy, ttlJitter float64) cache.Strategy {
	var all [processes]cache.Strategy
	for i := range all {
		all[i] = make(ttlJitter)
	}
	return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
		return all[herd.WorkerFrom(ctx).Number%processes].Get(ctx, key)
	})
}
