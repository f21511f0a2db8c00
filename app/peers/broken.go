package main

import (
	"context"

	"cachelab/app/cache"
)

func useBroken(ctx context.Context, s setting) (get, error) {
	aside, _, err := s.aside(ctx)
	return values(&cache.Broken{Aside: aside}), err
}
