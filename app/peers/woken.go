package main

import (
	"context"

	"cachelab/app/cache"
)

func useWoken(ctx context.Context, s setting) (get, error) {
	aside, redis, err := s.aside(ctx)
	if err != nil {
		return nil, err
	}
	return values(&cache.Woken{Aside: aside, Listener: redis.NewListener(), Lock: fillLock(), WaitTimeout: waitTimeout}), nil
}
