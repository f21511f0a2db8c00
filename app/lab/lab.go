// Package lab is the wiring of a run: Redis, backend, strategy, herd and report, closed in reverse.
package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/embedded"
	"cachelab/app/events"
	"cachelab/app/herd"
	"cachelab/app/redisstore"
	"cachelab/app/report"
)

// Config is what a run needs to know. The command line validates it.
type Config struct {
	Workers     int
	Rounds      int
	Key         string
	TTL         time.Duration
	TTLJitter   float64
	LockTTL     time.Duration
	WaitTimeout time.Duration
	Backend     backend.Config
	Redis       redisstore.Target
	Quiet       bool // no line for each step
}

// Lab holds what runs have in common: the Redis to use. Make one with [Open], and Close it.
type Lab struct {
	config   Config
	terminal *report.Terminal
	embedded *embedded.Server // nil if a real Redis is used
}

// Open chooses the Redis, and starts the embedded one if need be; one line says so.
func Open(ctx context.Context, config Config, terminal *report.Terminal) (*Lab, error) {
	redisstore.DiscardClientLog()
	l := &Lab{config: config, terminal: terminal}
	why := ""
	if config.Redis.Auto {
		if err := redisstore.Probe(ctx, config.Redis); err != nil {
			why = fmt.Sprintf(" (none at localhost:6379: %v)", err)
		}
	}
	if !config.Redis.Embedded && why == "" {
		return l, nil
	}
	var err error
	if l.embedded, err = embedded.Start(); err != nil {
		return nil, err
	}
	terminal.Notice("redis: using the embedded one" + why)
	return l, nil
}

// Close stops the embedded Redis, if there is one.
func (l *Lab) Close() error {
	if l.embedded == nil {
		return nil
	}
	return l.embedded.Close()
}

// Run makes one run and prints it. The error says why it ended early; the returned run holds what there is.
// A run with a bad verdict is no error.
func (l *Lab) Run(ctx context.Context, mode Mode) (report.Run, error) {
	started := time.Now()
	id := newRunID(mode, started)
	l.terminal.Notice(l.settings(mode, id))

	ledger, facts, err := l.run(ctx, mode, id)
	facts.ID, facts.Mode, facts.Redis = id, mode.Name, l.redisName()
	facts.Started, facts.Duration = started, time.Since(started)
	facts.Verdict = mode.Judge(ledger)
	if err != nil {
		facts.Err = err
		facts.Verdict.OK = false
		facts.Verdict.Text = fmt.Sprintf("after %d of %d rounds: %s", ledger.Rounds, l.config.Rounds, facts.Verdict.Text)
	}
	run := report.NewRun(ledger, facts)
	if ledger.Rounds > 0 {
		l.terminal.Summary(run, ledger.FirstError)
	}
	return run, err
}

func (l *Lab) run(ctx context.Context, mode Mode, id string) (_ herd.Ledger, facts report.Facts, err error) {
	redis, err := l.openRedis(ctx, id)
	if err != nil {
		return herd.Ledger{}, facts, err
	}
	defer func() { err = errors.Join(err, redis.Close()) }()

	if err := l.prepare(ctx, redis); err != nil {
		return herd.Ledger{}, facts, err
	}
	service := backend.New(l.config.Backend)
	view := l.terminal.View(mode.Name, l.config.Workers, l.config.Rounds, !l.config.Quiet)
	defer view.Close()
	tell := events.Teller(view.Tell)

	aside := cache.Aside{
		Store:     tell.Store(redis),
		Backend:   tell.Loader(service),
		Probe:     tell.Probe(cache.NoProbe{}),
		TTL:       l.config.TTL,
		TTLJitter: l.config.TTLJitter,
	}
	lock := cache.FillLock{TTL: l.config.LockTTL, NewToken: cache.RandomToken}
	h := herd.Herd{
		Strategy: mode.New(aside, lock, l.config.WaitTimeout),
		Key:      l.config.Key,
		Workers:  l.config.Workers,
		Rounds:   l.config.Rounds,
		Keeper:   redis,
		Observer: view.Observe(herd.NoObserver{}),
	}
	before := redis.TakeCensus(ctx)
	ledger, err := h.Run(ctx)

	// Interrupted or not, what Redis counted is worth having.
	counted, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	facts.RedisCommands.Commands, facts.RedisCommands.Standing = redis.Count(counted, before)
	facts.BackendPeak = service.Stats().Peak
	return ledger, facts, err
}

func (l *Lab) openRedis(ctx context.Context, id string) (*redisstore.Redis, error) {
	options := redisstore.Options{Target: l.config.Redis, Workers: l.config.Workers, Name: "cachelab-" + id}
	if l.embedded == nil {
		return redisstore.Open(ctx, options)
	}
	options.Commands = l.embedded.Commands
	return redisstore.OpenAt(ctx, l.embedded.Addr(), options)
}

// prepare waits for a fill lock that somebody holds, which is never deleted, and lets the key expire.
func (l *Lab) prepare(ctx context.Context, redis *redisstore.Redis) error {
	lock := cache.LockKey(l.config.Key)
	holder, err := redis.Locked(ctx, lock)
	if err != nil {
		return err
	}
	if holder != nil {
		if holder.TTL < 0 {
			return fmt.Errorf("the fill lock %q holds %q and never expires, so it is not the lab's: delete it or choose another --key", lock, holder.Token)
		}
		l.terminal.Notice(fmt.Sprintf("the fill lock is held by %q: waiting up to %v for it", holder.Token, holder.TTL))
		limited, cancel := context.WithTimeout(ctx, holder.TTL+time.Second)
		defer cancel()
		if err := redis.AwaitExpiry(limited, lock); err != nil {
			if ctx.Err() == nil {
				err = fmt.Errorf("still held after %v: is another run using this key? choose another --key", holder.TTL)
			}
			return fmt.Errorf("waiting for the fill lock %q: %w", lock, err)
		}
	}
	return redis.Forget(ctx, l.config.Key)
}

func (l *Lab) redisName() string {
	if l.embedded != nil {
		return "embedded"
	}
	if l.config.Redis.Auto {
		return redisstore.DefaultURL
	}
	return l.config.Redis.String()
}

// settings are the lines that a run starts with.
func (l *Lab) settings(mode Mode, id string) string {
	c := l.config
	b := c.Backend
	text := fmt.Sprintf("%s: %d workers x %d rounds on %q, TTL %v", mode.Name, c.Workers, c.Rounds, c.Key, c.TTL)
	if c.TTLJitter > 0 {
		text += fmt.Sprintf(" +-%g%%", c.TTLJitter*100)
	}
	if mode.Locks {
		text += fmt.Sprintf(", lock TTL %v, wait timeout %v", c.LockTTL, c.WaitTimeout)
	}
	text += fmt.Sprintf("\n  backend %v +-%g%%", b.Latency, b.Jitter*100)
	if b.Capacity > 0 {
		text += fmt.Sprintf(", %d at once", b.Capacity)
	}
	if failures := b.Failures.String(); failures != "" {
		text += ", fails: " + failures
	}
	return text + fmt.Sprintf("; redis %s; run %s", l.redisName(), id)
}

// newRunID names a run so that it can be told from others, and be read: mode, time, and 4 random characters.
func newRunID(mode Mode, started time.Time) string {
	return fmt.Sprintf("%s-%s-%s", mode.Name, started.UTC().Format("20060102-150405"), strings.ToLower(rand.Text()[:4]))
}
