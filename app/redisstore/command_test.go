package redisstore_test

import (
	"testing"
	"time"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// The table of what each command adds to Redis's own counters, held against Redis.
func TestEachCommandAddsWhatTheTableSays(t *testing.T) {
	type step struct {
		name     string
		command  redisstore.Command
		stored   int
		released int
		send     func(*testing.T, *redisstore.Redis) error
		want     redisstore.Commands
	}
	steps := []step{
		{"GET that misses", redisstore.CommandGet, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, _, err := r.Get(t.Context(), "key")
			return err
		}, redisstore.Commands{Get: 1}},
		{"GET and PTTL", redisstore.CommandGetTTL, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, _, _, err := r.GetTTL(t.Context(), "key")
			return err
		}, redisstore.Commands{Get: 1}},
		{"lock that is taken", redisstore.CommandLock, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.Lock(t.Context(), "lock", "A", time.Minute)
			return err
		}, redisstore.Commands{Set: 1}},
		{"lock that is held", redisstore.CommandLock, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.Lock(t.Context(), "lock", "B", time.Minute)
			return err
		}, redisstore.Commands{Set: 1}},
		{"SET", redisstore.CommandSet, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, _, err := r.Set(t.Context(), "key", "value", time.Minute)
			return err
		}, redisstore.Commands{Set: 1}},
		{"release of another's lock", redisstore.CommandUnlock, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.Unlock(t.Context(), "lock", "B")
			return err
		}, redisstore.Commands{Get: 1, Eval: 1}},
		{"release of one's own lock", redisstore.CommandUnlock, 0, 1, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.Unlock(t.Context(), "lock", "A")
			return err
		}, redisstore.Commands{Get: 1, Eval: 1, Del: 1}},
		{"store and release without the lock, over a value", redisstore.CommandStoreAndUnlock, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.StoreAndUnlock(t.Context(), "key", "late", time.Minute, "lock", "B")
			return err
		}, redisstore.Commands{Get: 1, Eval: 1}},
		{"store and release without the lock, of an absent key", redisstore.CommandStoreAndUnlock, 1, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.StoreAndUnlock(t.Context(), "another", "value", time.Minute, "lock", "B")
			return err
		}, redisstore.Commands{Get: 1, Eval: 1, Set: 1}},
		{"lock that is taken again", redisstore.CommandLock, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.Lock(t.Context(), "lock", "A", time.Minute)
			return err
		}, redisstore.Commands{Set: 1}},
		{"store and release with the lock", redisstore.CommandStoreAndUnlock, 1, 1, func(t *testing.T, r *redisstore.Redis) error {
			_, err := r.StoreAndUnlock(t.Context(), "key", "value", time.Minute, "lock", "A")
			return err
		}, redisstore.Commands{Get: 1, Eval: 1, Set: 1, Del: 1}},
		{"PUBLISH", redisstore.CommandPublish, 0, 0, func(t *testing.T, r *redisstore.Redis) error {
			return r.Publish(t.Context(), "lock")
		}, redisstore.Commands{Publish: 1}},
	}
	check := func(t *testing.T, r *redisstore.Redis) {
		for _, s := range steps {
			census := r.TakeCensus(t.Context())
			if err := s.send(t, r); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			counted, standing := r.Count(t.Context(), census)
			if table := s.command.Adds(1, s.stored, s.released); counted != s.want || table != s.want || standing != redisstore.Exact {
				t.Errorf("%s: Redis counted %+v (%s), the table says %+v, want %+v", s.name, counted, standing, table, s.want)
			}
		}
	}
	t.Run("redis-server", func(t *testing.T) { check(t, open(t, redistest.Start(t).Addr())) })
	t.Run("embedded", func(t *testing.T) {
		server := startEmbedded(t)
		check(t, open(t, server.Addr(), func(o *redisstore.Options) { o.Commands = server.Commands }))
	})
}
