package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

// lookAgain is how often a key is looked at that may go before its time: a lock that is given back.
const lookAgain = 50 * time.Millisecond

// outageLimit is how long a Redis that went away between two rounds is waited for.
const outageLimit = 5 * time.Second

// dialAgain is how often it is looked for meanwhile.
const dialAgain = 100 * time.Millisecond

// Holder is a fill lock that somebody holds.
type Holder struct {
	Token string
	TTL   time.Duration // until it expires; negative if it never does
}

// Forget deletes key, so that a run starts with an expired key. Only what the lab may have written is deleted: a value
// that is ours, with an expiry. Anything else stays, and is an error.
func (r *Redis) Forget(ctx context.Context, key string, ours func(value string) bool) error {
	value, err := r.keeper.Get(ctx, key).Result()
	absent := errors.Is(err, redis.Nil)
	if err != nil && !absent {
		return r.refused(ctx, fmt.Sprintf("GET %q", key), err)
	}
	ttl, err := r.keeper.PTTL(ctx, key).Result()
	if err != nil {
		return r.refused(ctx, fmt.Sprintf("PTTL %q", key), err)
	}
	if ttl == keyForever {
		return fmt.Errorf("%q is in Redis and never expires, so it is not the lab's: %s", key, makeRoom)
	}
	if !absent && !ours(value) {
		return fmt.Errorf("%q is in Redis and holds %.60q, which is not the lab's: %s", key, value, makeRoom)
	}
	return r.refused(ctx, fmt.Sprintf("DEL %q", key), r.keeper.Del(ctx, key).Err())
}

// Flush empties the server, which must be the caller's own.
func (r *Redis) Flush(ctx context.Context) error {
	return r.refused(ctx, "FLUSHALL", r.keeper.FlushAll(ctx).Err())
}

// makeRoom is what to do about somebody else's key.
const makeRoom = "delete it, choose another --key, or use --redis embedded"

// TTL returns how long key will live, 0 if it is absent.
func (r *Redis) TTL(ctx context.Context, key string) (time.Duration, error) {
	ttl, err := r.keeper.PTTL(ctx, key).Result()
	if err != nil {
		return 0, r.refused(ctx, fmt.Sprintf("PTTL %q", key), err)
	}
	return max(0, ttl), nil
}

// Locked returns who holds the lock, nil if nobody does.
func (r *Redis) Locked(ctx context.Context, lockKey string) (*Holder, error) {
	token, err := r.keeper.Get(ctx, lockKey).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, r.refused(ctx, fmt.Sprintf("GET %q", lockKey), err)
	}
	ttl, err := r.keeper.PTTL(ctx, lockKey).Result()
	if err != nil {
		return nil, r.refused(ctx, fmt.Sprintf("PTTL %q", lockKey), err)
	}
	if ttl == keyAbsent {
		return nil, nil
	}
	return &Holder{Token: token, TTL: ttl}, nil
}

// PTTL's answers that are no duration, as the client returns them.
const (
	keyAbsent  = time.Duration(-2)
	keyForever = time.Duration(-1)
)

// AwaitExpiry implements herd.Keeper: it returns when key is absent and the workers' connections are warm. An outage of
// Redis is waited out for 5 s.
func (r *Redis) AwaitExpiry(ctx context.Context, key string) error {
	if err := r.awaitAbsence(ctx, key); err != nil {
		return err
	}
	return r.awaitWorkers(ctx)
}

// awaitWorkers returns when each connection of the workers has answered. After an outage that is up to a second later than
// the keeper's: their pool goes on answering with its last dial error, and dials again only once a second.
func (r *Redis) awaitWorkers(ctx context.Context) error {
	for started := time.Now(); ; {
		err := r.warm(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			return nil
		case time.Since(started) > outageLimit:
			return fmt.Errorf("Redis answered again, but not the workers' connections within %v: %w", outageLimit, err)
		}
		if err := cache.Sleep(ctx, dialAgain); err != nil {
			return err
		}
	}
}

func (r *Redis) awaitAbsence(ctx context.Context, key string) error {
	var outage time.Time
	for {
		ttl, err := r.keeper.PTTL(ctx, key).Result()
		pause := min(ttl+time.Millisecond, lookAgain) // PTTL counts in whole milliseconds
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if outage.IsZero() {
				outage = time.Now()
			}
			if time.Since(outage) > outageLimit {
				return fmt.Errorf("Redis stayed away for %v: %w", outageLimit, err)
			}
			pause = dialAgain
		case ttl == keyAbsent:
			return nil
		case ttl == keyForever:
			return fmt.Errorf("it has no expiry: somebody else set it; delete it or choose another --key")
		default:
			outage = time.Time{}
		}
		if err := cache.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}
