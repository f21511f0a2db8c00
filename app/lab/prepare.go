package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
)

// ready makes sure that the Redis does what a run will ask of it: the lock is free, the key has expired, and each command
// of the modes is permitted. With auto, a Redis that refuses is left for the embedded one; a line says why. Rings may be
// refused: that is a warning.
func (l *Lab) ready(ctx context.Context, id string, all ...modes.Mode) error {
	err := l.tryRedis(ctx, id, all)
	if refusal := (*redisstore.Refusal)(nil); !errors.As(err, &refusal) || !l.config.Redis.Auto || l.embedded != nil || l.owns() {
		return err
	}
	if err := l.embed(fmt.Sprintf(" (%v)", err)); err != nil {
		return err
	}
	return l.tryRedis(ctx, id, all)
}

// tryRedis prepares the Redis with connections of its own, as many as the run's.
func (l *Lab) tryRedis(ctx context.Context, id string, all []modes.Mode) error {
	redis, err := l.openRedis(ctx, id, nil)
	if err != nil {
		return err
	}
	err = l.prepare(ctx, redis, slices.Concat(all, l.config.Modes))
	if ring := slices.IndexFunc(all, func(m modes.Mode) bool { return m.Rings }); ring >= 0 && err == nil {
		l.tryRing(ctx, redis, all[ring])
	}
	return errors.Join(err, redis.Close())
}

// tryRing warns of a Redis by which nobody can be woken.
func (l *Lab) tryRing(ctx context.Context, redis *redisstore.Redis, mode modes.Mode) {
	channel, err := redis.LockKey(l.config.Key, mode.OneSlot)
	if err == nil {
		err = redis.TryRing(ctx, channel)
	}
	if err != nil && ctx.Err() == nil {
		l.terminal.Warn(fmt.Sprintf("who waits for a fill is not woken, and sees the value up to half a second later: %v", err))
	}
}

// prepare waits for a fill lock that somebody holds, which is never deleted, lets the key expire, and tries each command.
func (l *Lab) prepare(ctx context.Context, redis *redisstore.Redis, all []modes.Mode) error {
	trials, err := l.trials(redis, all)
	for _, trial := range trials {
		if err = l.prepareLock(ctx, redis, trial); err != nil {
			break
		}
	}
	return err
}

// trials are what the modes need: each name that their locks have here.
func (l *Lab) trials(redis *redisstore.Redis, all []modes.Mode) (trials []redisstore.Trial, err error) {
	key := l.config.Key
	for _, mode := range all {
		if !mode.Locks {
			continue
		}
		lock, err := redis.LockKey(key, mode.OneSlot)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", mode.Name, err)
		}
		at := slices.IndexFunc(trials, func(t redisstore.Trial) bool { return t.Lock == lock })
		if at < 0 {
			at = len(trials)
			trials = append(trials, redisstore.Trial{Key: key, Value: backend.Answer(key).String(), Lock: lock})
		}
		trials[at].InOneCommand = trials[at].InOneCommand || mode.OneSlot
	}
	if len(trials) == 0 {
		trials = []redisstore.Trial{{Key: key, Value: backend.Answer(key).String()}}
	}
	return trials, nil
}

func (l *Lab) prepareLock(ctx context.Context, redis *redisstore.Redis, trial redisstore.Trial) (err error) {
	key, lock := trial.Key, cmp.Or(trial.Lock, cache.LockKey(trial.Key)) // who locks not waits for who does
	for range maxPreflights {
		if err := l.awaitLock(ctx, redis, lock); err != nil {
			return err
		}
		if err := redis.Forget(ctx, key, func(value string) bool { return backend.IsAnswer(key, value) }); err != nil {
			return err
		}
		if err = redis.Preflight(ctx, trial); !errors.Is(err, redisstore.ErrLocked) {
			return err
		}
	}
	return fmt.Errorf("prepare the run: %w again and again: another run uses this key; choose another --key", err)
}

// maxPreflights is how often the lock may be free, and taken by another process right after.
const maxPreflights = 20

func (l *Lab) awaitLock(ctx context.Context, redis *redisstore.Redis, lock string) error {
	holder, err := redis.Locked(ctx, lock)
	if err != nil || holder == nil {
		return err
	}
	switch advice := "delete it, choose another --key, or use --redis embedded"; {
	case holder.TTL < 0:
		return fmt.Errorf("the fill lock %q holds %q and never expires, so it is not the lab's: %s", lock, holder.Token, advice)
	case backend.IsAnswer(lock, holder.Token):
		return fmt.Errorf("the fill lock %q holds %q, which is no lock but a value: %s", lock, holder.Token, advice)
	}
	l.terminal.Notice(fmt.Sprintf("the fill lock is held by %q: waiting up to %v for it", holder.Token, holder.TTL))
	limited, cancel := context.WithTimeout(ctx, holder.TTL+time.Second)
	defer cancel()
	if err := redis.AwaitExpiry(limited, lock); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("still held after %v: is another run using this key? choose another --key", holder.TTL)
		}
		return fmt.Errorf("waiting for the fill lock %q: %w", lock, err)
	}
	return nil
}

// patient is the run's keeper. It says so when the key lives on after a TTL, and does not wait for ever.
func (s *session) patient() herd.Keeper {
	ttl := time.Duration(float64(s.config.TTL) * (1 + s.config.TTLJitter))
	return patience{keeper: s.redis, ttlOf: s.redis.TTL, ttl: ttl, say: s.terminal.Say}
}

type patience struct {
	keeper herd.Keeper
	ttlOf  func(ctx context.Context, key string) (time.Duration, error)
	ttl    time.Duration // the longest life of what the lab writes
	say    func(string)
}

const (
	// lateness is how much longer than its TTL a key may seem to live: the fill's reply, and a busy machine.
	lateness = 500 * time.Millisecond
	// extraLife is how long beyond two TTLs a key is waited for; an outage of Redis is among it.
	extraLife = 15 * time.Second
)

// AwaitExpiry implements [herd.Keeper].
func (p patience) AwaitExpiry(ctx context.Context, key string) error {
	limit := 2*p.ttl + extraLife
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var teller sync.WaitGroup
	teller.Go(func() {
		select {
		case <-time.After(p.ttl + lateness):
			if left, err := p.ttlOf(limited, key); err == nil && left > 0 {
				p.say(fmt.Sprintf("waiting for the expiry of %q: it lives for %v yet, and the lab gave it no more than %v; giving up in %v",
					key, left.Round(time.Millisecond), p.ttl, limit-p.ttl-lateness))
			}
		case <-limited.Done():
		}
	})
	err := p.keeper.AwaitExpiry(limited, key)
	late := err != nil && limited.Err() != nil && ctx.Err() == nil
	cancel()
	teller.Wait()
	if late {
		return fmt.Errorf("it did not expire in %v, and the lab gave it no more than %v: another client sets its expiry, or a clock was set; choose another --key, or use --redis embedded",
			limit, p.ttl)
	}
	return err
}
