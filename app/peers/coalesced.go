package main

import (
	"context"

	"cachelab/app/cache"
)

func useCoalesced(ctx context.Context, s setting) (get, error) {
	aside, _, err := s.aside(ctx)
	return values(&cache.Coalesced{Aside: aside, Limit: waitTimeout}), err
}
