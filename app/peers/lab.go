package main

import (
	"context"

	"cachelab/app/cache"
	"cachelab/app/redisstore"
)

// aside opens the lab's store, and is what each of its strategies begins with.
func (s setting) aside(ctx context.Context) (cache.Aside, *redisstore.Redis, error) {
	target, err := redisstore.ParseTarget(s.redis)
	if err != nil {
		return cache.Aside{}, nil, err
	}
	redis, err := redisstore.Open(ctx, redisstore.Options{Target: target, Workers: s.workers, Name: "cachelab-peers"})
	if err != nil {
		return cache.Aside{}, nil, err
	}
	return cache.Aside{Store: redis, Backend: loader(s.load), Probe: cache.NoProbe{}, TTL: s.ttl}, redis, nil
}

// waitTimeout is the waiters' limit, which must be longer than the lock lives.
const waitTimeout = lockTTL + lockTTL/2

func fillLock() cache.FillLock { return cache.FillLock{TTL: lockTTL, NewToken: cache.RandomToken} }

// loader implements cache.Loader.
type loader get

func (l loader) Load(ctx context.Context, key string) (string, error) { return l(ctx, key) }
