package main

import (
	"context"

	"cachelab/app/cache"
)

func useFixed(ctx context.Context, s setting) (cache.Strategy, error) {
	aside, _, err := s.aside(ctx)
	return &cache.Fixed{Aside: aside, Lock: fillLock(), WaitTimeout: waitTimeout}, err
}
