package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// everyCommand sends each of the workers' commands: 3 GET, 2 SET, 2 EVAL, one of which deletes.
func everyCommand(t *testing.T, r *redisstore.Redis) {
	t.Helper()
	ctx := t.Context()
	var errs []error
	for range 3 {
		_, _, err := r.Get(ctx, "key")
		errs = append(errs, err)
	}
	_, err := r.Lock(ctx, "lock", "A", time.Minute)
	errs = append(errs, err)
	_, _, err = r.Set(ctx, "key", "value", time.Minute)
	errs = append(errs, err)
	for range 2 {
		_, err = r.Unlock(ctx, "lock", "A")
		errs = append(errs, err)
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRedisCountsWhatWasSent(t *testing.T) {
	want := redisstore.Commands{Get: 5, Set: 2, Eval: 2, Del: 1}
	check := func(t *testing.T, r *redisstore.Redis) {
		census := r.TakeCensus(t.Context())
		everyCommand(t, r)
		if got, standing := r.Count(t.Context(), census); got != want || standing != redisstore.Exact {
			t.Errorf("got %+v, %s, want %+v, exact", got, standing, want)
		}
	}
	t.Run("redis-server", func(t *testing.T) { check(t, open(t, redistest.Start(t).Addr())) })
	t.Run("embedded", func(t *testing.T) {
		server := startEmbedded(t)
		check(t, open(t, server.Addr(), func(o *redisstore.Options) { o.Commands = server.Commands }))
	})
}

// A process of the run that tells how many connections it made is no stranger, while it is there and when it has left.
func TestACountWithAnotherProcessOfTheRunIsExact(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr(), func(o *redisstore.Options) { o.Name = "cachelab-run-1" })
	for _, test := range []struct {
		name          string
		tells, leaves bool
		want          redisstore.Standing
	}{
		{"cachelab-run-1-winner", true, false, redisstore.Exact},
		{"cachelab-run-1-winner", true, true, redisstore.Exact},
		{"cachelab-run-1-winner", false, true, redisstore.Shared},
		{"cachelab-run-10", true, false, redisstore.Shared}, // a run of its own
	} {
		census := r.TakeCensus(t.Context())
		other, err := redisstore.OpenAt(t.Context(), server.Addr(), redisstore.Options{Workers: 3, Name: test.name})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := other.Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		if test.tells {
			r.Joined(other.Dialled())
		}
		if test.leaves {
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if count, standing := r.Count(t.Context(), census); count.Get != 1 || standing != test.want {
			t.Errorf("%+v: %d GETs, %s, want 1", test, count.Get, standing)
		}
		_ = other.Close() // it may be closed
	}
}

func TestACountWithAStrangerOnTheServerIsShared(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	stranger := redis.NewClient(&redis.Options{Addr: server.Addr()})
	visit := func() {
		if err := stranger.Get(t.Context(), "key").Err(); err != redis.Nil {
			t.Fatal(err)
		}
	}

	census := r.TakeCensus(t.Context())
	visit()
	if _, standing := r.Count(t.Context(), census); standing != redisstore.Shared {
		t.Errorf("with a stranger connected: %s, want shared", standing)
	}
	census = r.TakeCensus(t.Context())
	visit()
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	if _, standing := r.Count(t.Context(), census); standing != redisstore.Shared {
		t.Errorf("with a stranger that left: %s, want shared", standing)
	}
}

func TestACountThatIsRefusedIsNotAvailable(t *testing.T) {
	server := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "-info")
	r := open(t, server.Addr())
	census := r.TakeCensus(t.Context())
	everyCommand(t, r)
	if _, standing := r.Count(t.Context(), census); standing != redisstore.NotAvailable {
		t.Errorf("without INFO: %s, want not available", standing)
	}
}

// The counters begin anew with a restart, and may soon be larger than before.
func TestACountOverARestartIsNotAvailable(t *testing.T) {
	check := func(t *testing.T, r *redisstore.Redis, restart func()) {
		census := r.TakeCensus(t.Context())
		restart()
		var gets sync.WaitGroup
		for range 20 {
			gets.Go(func() { _, _, _ = r.Get(t.Context(), "key") }) // the first find their connection cut
		}
		gets.Wait()
		everyCommand(t, r)
		if got, standing := r.Count(t.Context(), census); standing != redisstore.NotAvailable {
			t.Errorf("got %+v, %s, want not available", got, standing)
		}
	}
	t.Run("redis-server", func(t *testing.T) {
		server := redistest.Start(t)
		check(t, open(t, server.Addr()), func() { server.Stop(); server.Start() })
	})
	t.Run("embedded", func(t *testing.T) {
		server := startEmbedded(t)
		r := open(t, server.Addr(), func(o *redisstore.Options) { o.Commands, o.Starts = server.Commands, server.Starts })
		check(t, r, func() {
			if err := errors.Join(server.Stop(), server.Start(t.Context())); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func TestTheTTLOfAKey(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		if ttl, err := r.TTL(t.Context(), "key"); ttl != 0 || err != nil {
			t.Errorf("of an absent key: %v, %v", ttl, err)
		}
		if _, _, err := r.Set(t.Context(), "key", "value", time.Minute); err != nil {
			t.Fatal(err)
		}
		if ttl, err := r.TTL(t.Context(), "key"); ttl < 59*time.Second || ttl > time.Minute || err != nil {
			t.Errorf("got %v, %v, want a minute", ttl, err)
		}
	})
}

func TestAnOutageBetweenRoundsIsWaitedOut(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	if _, _, err := r.Set(t.Context(), "key", "value", time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	back := make(chan error, 1)
	go func() { back <- r.AwaitExpiry(t.Context(), "key") }()
	server.Start() // empty: the key is gone
	if err := <-back; err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

func TestALockThatIsGivenBackEarlyIsNotWaitedForAnyLonger(t *testing.T) {
	r := open(t, redistest.Start(t).Addr())
	if _, err := r.Lock(t.Context(), "lock", "A", time.Hour); err != nil {
		t.Fatal(err)
	}
	free := make(chan error, 1)
	go func() { free <- r.AwaitExpiry(t.Context(), "lock") }()
	if _, err := r.Unlock(t.Context(), "lock", "A"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-free:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waiting")
	}
}

func TestAnOutageThatLastsIsAnError(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	server.Stop()
	started := time.Now()
	err := r.AwaitExpiry(t.Context(), "key")
	if err == nil || !strings.Contains(err.Error(), "stayed away for 5s") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(started); took < 5*time.Second || took > 8*time.Second {
		t.Errorf("took %v, want 5 s", took)
	}
}

func TestAKeyWithoutExpiryIsAnErrorAndNoEndlessWait(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	stranger := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer stranger.Close()
	if err := stranger.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.AwaitExpiry(t.Context(), "key"); err == nil || !strings.Contains(err.Error(), "no expiry") {
		t.Errorf("got %v", err)
	}
	if err := r.Forget(t.Context(), "key", anyValue); err == nil || !strings.Contains(err.Error(), "not the lab's") {
		t.Errorf("a stranger's key is forgotten: %v", err)
	}
	if value, found, err := r.Get(t.Context(), "key"); value != "value" || !found || err != nil {
		t.Errorf("a stranger's key afterwards: %q, %v, %v", value, found, err)
	}
}

func TestOpenSaysWhatWasTriedAndWhatToDo(t *testing.T) {
	redisstore.DiscardClientLog()
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	protected := redistest.Start(t, "--requirepass", "s3cret")

	tests := []struct {
		name, url string
		want      []string
	}{
		{"refused", "redis://:s3cret@127.0.0.1:1/2", []string{"tried PING at redis://127.0.0.1:1/2", "connection refused", "--redis embedded"}},
		{"silent", "redis://:s3cret@" + silent.Addr().String(), []string{"no answer within 1s", "--redis embedded"}},
		{"password missing", protected.URL(), []string{"NOAUTH", "user:password@host"}},
		{"password wrong", "redis://:s3cretwrong@" + protected.Addr(), []string{"WRONGPASS", "user:password@host"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			target, err := redisstore.ParseTarget(test.url)
			if err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			_, err = redisstore.Open(t.Context(), redisstore.Options{Target: target, Workers: 50, Name: "cachelab-test"})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q tells the password", err)
			}
			if took := time.Since(started); took > 3*time.Second {
				t.Errorf("took %v, want at most 3 s", took)
			}
		})
	}
	t.Run("password right", func(t *testing.T) {
		target, err := redisstore.ParseTarget("redis://:s3cret@" + protected.Addr())
		if err != nil {
			t.Fatal(err)
		}
		r, err := redisstore.Open(t.Context(), redisstore.Options{Target: target, Workers: 5, Name: "cachelab-test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectionsAreWarmBeforeTheFirstCommand(t *testing.T) {
	server := redistest.Start(t)
	var dials atomic.Int32
	var client *redis.Client
	r := open(t, server.Addr(), func(o *redisstore.Options) {
		o.Workers = 20
		o.Instrument = func(c *redis.Client) error {
			client = c
			client.AddHook(dialHook{&dials})
			return nil
		}
	})
	if idle := client.PoolStats().IdleConns; idle != 20 {
		t.Errorf("%d idle connections, want 20", idle)
	}
	dials.Store(0)
	everyCommand(t, r)
	if n := dials.Load(); n != 0 {
		t.Errorf("%d connections were opened by commands, want 0", n)
	}
}

type dialHook struct{ dials *atomic.Int32 }

func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.dials.Add(1)
		return next(ctx, network, addr)
	}
}
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTargetsAreShownWithoutPassword(t *testing.T) {
	for text, want := range map[string]string{
		"auto":                                    "auto",
		"embedded":                                "embedded",
		"redis://user:s3cret@localhost:6379/3":    "redis://localhost:6379/3",
		"rediss://:s3cret@localhost:6380":         "rediss://localhost:6380",
		"unix://user:s3cret@/tmp/redis.sock?db=2": "unix:///tmp/redis.sock?db=2",
	} {
		target, err := redisstore.ParseTarget(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := target.String(); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

// The client's own parser reads each of these as some server, most of them as localhost:6379.
func TestATargetThatIsNotPlainlyAURLIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "localhost", "localhost:7120", "http://x", "redis:localhost:7120", "redis:/localhost:7120", "redis:", "rediss:host", "unix:", "unix://host/tmp/x",
		"redis://u:s3cret@h/x", "redis://u:s3cret", "redis://u:s3cret,localhost:7110", "redis://u:12#s3cret@h", "redis://u:12/s3cret@h",
		"redis://localhost:7110?password=s3cret", "redis://u:s3cret@h?password=s3cret", "unix:///u:s3cret@/tmp/x", "redis://h1:1,h2:2",
	} {
		target, err := redisstore.ParseTarget(text)
		if err == nil {
			t.Errorf("%q is taken for %s", text, target)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want an error without the password", text, err)
		}
	}
}
