package main

import (
	"context"

	"cachelab/app/cache"
)

func useWoken(ctx context.Context, s setting) (cache.Strategy, error) {
	aside, redis, err := s.aside(ctx)
	if err != nil {
		return nil, err
	}
	return &cache.Woken{Aside: aside, Listener: redis.NewListener(), Lock: fillLock(), WaitTimeout: waitTimeout}, nil
}
