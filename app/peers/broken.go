package main

import (
	"context"

	"cachelab/app/cache"
)

func useBroken(ctx context.Context, s setting) (cache.Strategy, error) {
	aside, _, err := s.aside(ctx)
	return &cache.Broken{Aside: aside}, err
}
