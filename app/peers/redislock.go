package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// useRedislock is cache-aside under a lock, with a look before and after. The retry is that of its example, every 100 ms, but
// without a limit of three: those would give up within a fill. Its own limit remains, the lock's TTL.
// See https://pkg.go.dev/github.com/bsm/redislock#example-Client.Obtain-Retry.
func useRedislock(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	locker := redislock.New(client)
	return func(ctx context.Context, key string) (_ string, err error) {
		value, err := client.Get(ctx, key).Result()
		if !errors.Is(err, redis.Nil) {
			return value, err
		}
		lock, err := locker.Obtain(ctx, key+":lock", lockTTL, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return "", err
		}
		defer lock.Release(ctx)
		value, err = client.Get(ctx, key).Result()
		if !errors.Is(err, redis.Nil) {
			return value, err
		}
		value, err = s.load(ctx, key)
		if err != nil {
			return "", err
		}
		return value, client.Set(ctx, key, value, s.ttl).Err()
	}, err
}
