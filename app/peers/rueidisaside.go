package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
)

// useRueidisaside is its Get, with its defaults: a process that is gone for 10 s has lost its locks.
// See https://github.com/redis/rueidis/tree/main/rueidisaside.
func useRueidisaside(_ context.Context, s setting) (get, error) {
	options, err := rueidis.ParseURL(s.redis)
	if err != nil {
		return nil, err
	}
	client, err := rueidisaside.NewClient(rueidisaside.ClientOption{ClientOption: options})
	return func(ctx context.Context, key string) (string, error) {
		return client.Get(ctx, s.ttl, key, s.load)
	}, err
}
