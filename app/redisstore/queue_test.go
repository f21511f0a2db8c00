package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// A winner's SET and release pass by the herd that reads and polls: with it they would queue until their limit.
func TestAWinnersCommandsDoNotQueueBehindTheHerd(t *testing.T) {
	const herd = 640
	proxy := redistest.StartProxy(t, startEmbedded(t).Addr())
	var asked, answered atomic.Int64
	all := make(chan struct{})
	r := open(t, proxy.Addr(), func(o *redisstore.Options) {
		o.Workers = herd
		o.Instrument = func(client *redis.Client) error {
			client.AddHook(askedHook{func() {
				if asked.Add(1) == herd {
					close(all)
				}
			}})
			return nil
		}
	})
	proxy.Delay(50 * time.Millisecond)
	var reads sync.WaitGroup
	for i := range herd {
		reads.Go(func() {
			var err error
			if i%2 == 0 {
				_, _, err = r.Get(t.Context(), "key")
			} else {
				_, _, _, err = r.GetTTL(t.Context(), "key")
			}
			if err != nil {
				t.Error(err)
			}
			answered.Add(1)
		})
	}
	<-all
	if _, _, err := r.Set(t.Context(), "key", "value", time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := r.Unlock(t.Context(), "lock", "token"); err != nil {
		t.Error(err)
	}
	if n := answered.Load(); n > herd/2 {
		t.Errorf("%d of %d reads were answered before SET and the release were, want few", n, herd)
	}
	reads.Wait()
}

// askedHook tells of each GET when it is asked for.
type askedHook struct{ tell func() }

func (askedHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h askedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "get" {
			h.tell()
		}
		return next(ctx, cmds)
	}
}
func (h askedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" {
			h.tell()
		}
		return next(ctx, cmd)
	}
}
