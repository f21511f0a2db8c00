package main

import (
	"context"

	"cachelab/app/cache"
)

func useCoalesced(ctx context.Context, s setting) (cache.Strategy, error) {
	aside, _, err := s.aside(ctx)
	return &cache.Coalesced{Aside: aside, Limit: waitTimeout}, err
}
