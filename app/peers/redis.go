package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

// keeper looks after the key, and reads what Redis counts, less what it sent itself.
type keeper struct {
	client        *redis.Client
	read, written atomic.Int64

	mu  sync.Mutex
	own map[string]int // commands
}

func newKeeper(url string) (*keeper, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("read the URL of Redis: %w", err)
	}
	k := &keeper{own: map[string]int{}}
	options.PoolSize, options.MaxRetries = 1, -1
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		return counted{conn, k}, err
	}
	k.client = redis.NewClient(options)
	k.client.AddHook(k)
	return k, nil
}

// counted is the keeper's connection.
type counted struct {
	net.Conn
	k *keeper
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.k.read.Add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.k.written.Add(int64(n))
	return n, err
}

// ProcessHook implements redis.Hook.
func (k *keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.mu.Lock()
		k.own[cmd.Name()]++
		k.mu.Unlock()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook and DialHook implement redis.Hook.
func (k *keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (k *keeper) DialHook(next redis.DialHook) redis.DialHook { return next }

// census is what Redis has counted so far.
type census struct {
	commands int
	bytes    int64
	cpu      time.Duration
}

func (c census) since(d census) census {
	return census{c.commands - d.commands, c.bytes - d.bytes, c.cpu - d.cpu}
}

var (
	callsOf = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+)`)
	bytesOf = regexp.MustCompile(`(?m)^total_net_(?:input|output)_bytes:(\d+)`)
	cpuOf   = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`)
)

func (k *keeper) census(ctx context.Context) (c census, err error) {
	k.mu.Lock()
	own := maps.Clone(k.own) // Redis does not count this INFO yet, and has not sent its reply
	k.mu.Unlock()
	read := k.read.Load()
	info, err := k.client.Info(ctx, "commandstats", "stats", "cpu").Result()
	if err != nil {
		return c, fmt.Errorf("INFO (Redis 7.0 or newer is needed): %w", err)
	}
	for _, m := range callsOf.FindAllStringSubmatch(info, -1) {
		n, _ := strconv.Atoi(m[2])
		c.commands += n - own[m[1]]
	}
	for _, m := range bytesOf.FindAllStringSubmatch(info, -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		c.bytes += n
	}
	c.bytes -= read + k.written.Load()
	for _, m := range cpuOf.FindAllStringSubmatch(info, -1) {
		s, _ := strconv.ParseFloat(m[1], 64)
		c.cpu += time.Duration(s * float64(time.Second))
	}
	return c, nil
}

// version is what the server calls itself.
func (k *keeper) version(ctx context.Context) (string, error) {
	info, err := k.client.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("INFO: %w", err)
	}
	if m := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info); m != nil {
		return m[1], nil
	}
	return "unknown", nil
}

// expire makes the key's end near, and waits for it. Whoever stores in the background, or keeps values in memory for a
// moment, has come to an end before.
func (k *keeper) expire(ctx context.Context) error {
	if err := cache.Sleep(ctx, settle); err != nil {
		return err
	}
	if err := k.client.PExpire(ctx, key, time.Millisecond).Err(); err != nil {
		return fmt.Errorf("PEXPIRE %q: %w", key, err)
	}
	for {
		ttl, err := k.client.PTTL(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("PTTL %q: %w", key, err)
		}
		if ttl == -2 {
			return cache.Sleep(ctx, hear)
		}
		if err := cache.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

const (
	memoryTTL = 50 * time.Millisecond // of the peer that keeps values in memory
	settle    = 3 * memoryTTL
	hear      = 50 * time.Millisecond // until whoever is told of an expiry has heard of it, on a busy machine
)
