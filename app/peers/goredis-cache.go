package main

import (
	"context"

	"github.com/go-redis/cache/v9"
)

// useGoRedisCache is Once, without the local cache, which is an option: it would serve values for longer than their TTL.
// See https://pkg.go.dev/github.com/go-redis/cache/v9.
func useGoRedisCache(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	values := cache.New(&cache.Options{Redis: client})
	return func(ctx context.Context, key string) (value string, err error) {
		err = values.Once(&cache.Item{
			Ctx:   ctx,
			Key:   key,
			Value: &value,
			TTL:   s.ttl,
			Do:    func(*cache.Item) (any, error) { return s.load(ctx, key) },
		})
		return value, err
	}, err
}
