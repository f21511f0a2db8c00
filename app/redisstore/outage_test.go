package redisstore_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// After an outage the keeper's client sees Redis before the workers' pool does, which goes on with its last dial error.
func TestARoundBeginsWhenTheWorkersAreServedAgain(t *testing.T) {
	const workers = 10
	server := redistest.Start(t)
	var spans atomic.Int64
	r := open(t, server.Addr(), func(o *redisstore.Options) {
		o.Workers = workers
		o.Instrument = func(client *redis.Client) error {
			client.AddHook(commandsHook{&spans})
			return nil
		}
	})
	get := func() (failed int64) {
		var errors atomic.Int64
		var all sync.WaitGroup
		for range 2 * workers {
			all.Go(func() {
				if _, _, err := r.Get(t.Context(), "key"); err != nil {
					errors.Add(1)
				}
			})
		}
		all.Wait()
		return errors.Load()
	}
	census := r.TakeCensus(t.Context())
	server.Stop()
	if failed := get() + get(); failed != 4*workers {
		t.Fatalf("%d of %d GETs failed while Redis was away", failed, 4*workers)
	}
	server.Start()
	spans.Store(0)
	if err := r.AwaitExpiry(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if n := spans.Load(); n != 0 {
		t.Errorf("%d of the workers' commands were sent before the round, want 0", n)
	}
	if failed := get(); failed != 0 {
		t.Errorf("%d of %d GETs failed in the first round after the outage, want 0", failed, 2*workers)
	}
	if _, standing := r.Count(t.Context(), census); standing != redisstore.NotAvailable {
		t.Errorf("the count over a restart is %s, want not available", standing)
	}
}

// commandsHook counts the commands that have spans.
type commandsHook struct{ n *atomic.Int64 }

func (commandsHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (commandsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h commandsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains([]string{"get", "set", "eval"}, cmd.Name()) {
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A server that stands still accepts connections whose handshake fails: they are the lab's own.
func TestConnectionsWhoseHandshakeFailedAreNoStrangers(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr(), func(o *redisstore.Options) { o.Workers = 5 })
	census := r.TakeCensus(t.Context())
	server.Pause()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			for ctx.Err() == nil { // the first finds a connection, the next dials
				_, _, _ = r.Get(ctx, "key")
			}
		})
	}
	all.Wait()
	server.Resume()
	if err := r.AwaitExpiry(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if _, standing := r.Count(t.Context(), census); standing != redisstore.Exact {
		t.Errorf("nobody else was there: %s, want exact", standing)
	}
}
