package main

import (
	"context"

	"github.com/eko/gocache/lib/v4/cache"
	"github.com/eko/gocache/lib/v4/store"
	redisstore "github.com/eko/gocache/store/redis/v4"
)

// useGocache is a loadable cache on its store for Redis.
// See https://github.com/eko/gocache#a-loadable-cache.
func useGocache(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	load := func(ctx context.Context, key any) (string, []store.Option, error) {
		value, err := s.load(ctx, key.(string))
		return value, []store.Option{store.WithExpiration(s.ttl)}, err
	}
	values := cache.NewLoadable(load, cache.New[string](redisstore.NewRedis(client)))
	return func(ctx context.Context, key string) (string, error) {
		return values.Get(ctx, key)
	}, err
}
