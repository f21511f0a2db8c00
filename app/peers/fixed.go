package main

import (
	"context"

	"cachelab/app/cache"
)

func useFixed(ctx context.Context, s setting) (get, error) {
	aside, _, err := s.aside(ctx)
	return values(&cache.Fixed{Aside: aside, Lock: fillLock(), WaitTimeout: waitTimeout}), err
}
