package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// useRedsync is cache-aside under a mutex of its defaults (expiry of 8 s, 32 tries, 50 to 250 ms apart), with a look before
// and after. See https://github.com/go-redsync/redsync#usage.
func useRedsync(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context, key string) (_ string, err error) {
		value, err := client.Get(ctx, key).Result()
		if !errors.Is(err, redis.Nil) {
			return value, err
		}
		mutex := locks.NewMutex(key + ":lock")
		if err := mutex.LockContext(ctx); err != nil {
			return "", err
		}
		defer mutex.UnlockContext(ctx)
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
