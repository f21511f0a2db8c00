package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Client returns the workers' client, for a room that sends other commands than the store's. It is closed with r.
func (r *Redis) Client() redis.UniversalClient { return r.client }

// Masters returns a client for each server that holds keys.
func (r *Redis) Masters(ctx context.Context) ([]*redis.Client, error) { return r.client.masters(ctx) }

// Refused is what a person is told of the error of such a command: see [Refusal].
func (r *Redis) Refused(ctx context.Context, tried string, err error) error {
	return r.refused(ctx, tried, err)
}
