package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"
)

// useSturdyc is GetOrFetch, in memory for a while that is short beside the TTL in the distributed store.
// See https://github.com/viccon/sturdyc#distributed-storage.
func useSturdyc(_ context.Context, s setting) (get, error) {
	client, err := s.goRedis()
	const capacity, shards, evicted = 10_000, 10, 10 // those of its example
	values := sturdyc.New[string](capacity, shards, memoryTTL, evicted,
		sturdyc.WithEvictionInterval(time.Second), // the default is the TTL / shards, and this one is short
		sturdyc.WithDistributedStorage(&storage{client, s}),
	)
	return func(ctx context.Context, key string) (string, error) {
		return values.GetOrFetch(ctx, key, func(ctx context.Context) (string, error) { return s.load(ctx, key) })
	}, err
}

// storage implements sturdyc.DistributedStorage on Redis.
type storage struct {
	client *redis.Client
	setting
}

func (s *storage) Get(ctx context.Context, key string) ([]byte, bool) {
	value, err := s.client.Get(ctx, key).Bytes()
	return value, err == nil
}

func (s *storage) Set(ctx context.Context, key string, value []byte) {
	s.client.Set(ctx, key, value, s.ttl)
}

func (s *storage) GetBatch(ctx context.Context, keys []string) map[string][]byte {
	values := map[string][]byte{}
	for _, key := range keys {
		if value, found := s.Get(ctx, key); found {
			values[key] = value
		}
	}
	return values
}

func (s *storage) SetBatch(ctx context.Context, values map[string][]byte) {
	for key, value := range values {
		s.Set(ctx, key, value)
	}
}
