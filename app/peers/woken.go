package main

import (
	"context"

	"cachelab/app/cache"
)

func useWoken(ctx context.Context, s setting) (get, error) {
	aside, redis, err := s.aside(ctx)
	return values(&cache.Woken{Aside: aside, Listener: redis, Lock: fillLock(), WaitTimeout: waitTimeout}), err
}
