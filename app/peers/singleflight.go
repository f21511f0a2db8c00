package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// useSingleflight is cache-aside inside of Do.
// See https://pkg.go.dev/golang.org/x/sync/singleflight.
func useSingleflight(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	group := new(singleflight.Group)
	return func(ctx context.Context, key string) (string, error) {
		value, err, _ := group.Do(key, func() (any, error) {
			value, err := client.Get(ctx, key).Result()
			if !errors.Is(err, redis.Nil) {
				return value, err
			}
			value, err = s.load(ctx, key)
			if err != nil {
				return "", err
			}
			return value, client.Set(ctx, key, value, s.ttl).Err()
		})
		if err != nil {
			return "", err
		}
		return value.(string), nil
	}, err
}
