package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

// peer is one way to protect a backend from a herd, used as its documentation says. The file of its name holds its use.
type peer struct {
	name   string
	module string // of the library, whose version is printed; "" for the lab's own code
	what   string
	open   func(ctx context.Context, s setting) (cache.Strategy, error)
}

// get answers a request for key, from the cache or from the backend.
type get func(ctx context.Context, key string) (string, error)

// Get implements cache.Strategy. What it took, only Redis and the backend know.
func (g get) Get(ctx context.Context, key string) (*cache.Result, error) {
	value, err := g(ctx, key)
	return &cache.Result{Value: value}, err
}

// library opens what is used by a function.
func library(use func(context.Context, setting) (get, error)) func(context.Context, setting) (cache.Strategy, error) {
	return func(ctx context.Context, s setting) (cache.Strategy, error) { return use(ctx, s) }
}

// setting is what each peer is given.
type setting struct {
	redis   string // a URL
	workers int    // of this process
	ttl     time.Duration
	load    get // the backend
}

// Limits and settings that several peers share.
const (
	lockTTL = 10 * time.Second // where a lock asks for one: the lab's own default
	maxPool = 64               // connections of a go-redis client, as in the lab
)

// peers are all that can be measured, in the order in which they are shown. Two of the lab's strategies are missing: on a key
// that has expired for all, early and stale are what fixed is. Their promise is that this does not happen, and only traffic can
// show it ("make gallery").
func peers() []peer {
	return []peer{
		{"broken", "", "the lab's, and nobody's protection", useBroken},
		{"singleflight", "golang.org/x/sync", "one fill a process", library(useSingleflight)},
		{"gocache", "github.com/eko/gocache/lib/v4", "loadable: one fill a process, stored in the background", library(useGocache)},
		{"goredis-cache", "github.com/go-redis/cache/v9", "Once: one flight a process", library(useGoRedisCache)},
		{"sturdyc", "github.com/viccon/sturdyc", "one flight a process, in memory, on a distributed store", library(useSturdyc)},
		{"coalesced", "", "the lab's: one flight a process", useCoalesced},
		{"redislock", "github.com/bsm/redislock", "a lock with retries, and a second look under it", library(useRedislock)},
		{"redsync", "github.com/go-redsync/redsync/v4", "a lock with retries, and a second look under it", library(useRedsync)},
		{"fixed", "", "the lab's: a lock, and who waits polls the value", useFixed},
		{"rueidisaside", "github.com/redis/rueidis/rueidisaside", "a lock in the key, and invalidations wake who waits", library(useRueidisaside)},
		{"woken", "", "the lab's: one flight a process, a lock, and a message wakes who waits", useWoken},
	}
}

// named returns the peers of these names, in the order of the table.
func named(names []string) ([]peer, error) {
	all := peers()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p peer) bool { return p.name == name }) {
			return nil, fmt.Errorf("there is no peer %q: want some of %s", name, strings.Join(allNames(), ","))
		}
	}
	return slices.DeleteFunc(all, func(p peer) bool { return !slices.Contains(names, p.name) }), nil
}

func allNames() (names []string) {
	for _, p := range peers() {
		names = append(names, p.name)
	}
	return names
}

// goRedis is the client of those that use go-redis, with as many connections as the lab's has.
func (s setting) goRedis() (*redis.Client, error) {
	options, err := redis.ParseURL(s.redis)
	if err != nil {
		return nil, fmt.Errorf("read the URL of Redis: %w", err)
	}
	options.PoolSize = min(s.workers, maxPool)
	return redis.NewClient(options), nil
}
