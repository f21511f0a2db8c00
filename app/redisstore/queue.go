package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

// Limits of the workers' connections.
const (
	// maxPool bounds them. More than this does not make Redis, which executes one command at a time, any faster; callers
	// beyond it queue in the client.
	maxPool = 64
	// The processes of a run share twice as many, and each has at least a few: a connection costs Redis up to 40 kB.
	sharedPool = 2 * maxPool
	leastPool  = 2 * reserved
	// reserved are those that a queueing herd leaves free: the re-check, the SET and the release of a winner must not
	// queue behind the reads of those who wait for them.
	reserved = 4
	// queueTimeout bounds the queue, beside the time in which the herd passes through.
	queueTimeout = 5 * time.Second
)

// Passage is the time in which a herd of so many workers passes once through the connections, on a busy machine: 5,000
// commands a second. Meanwhile a reply may be there and nobody comes to look at it: limits grow with it.
func Passage(workers int) time.Duration { return time.Duration(workers/5000) * time.Second }

// queue is a hook in which first reads, polls and lock attempts wait for their turn, inside of what is measured.
type queue struct {
	turns chan struct{}
	limit time.Duration
}

func newQueue(pool int, passage time.Duration) queue {
	return queue{turns: make(chan struct{}, pool-reserved), limit: queueTimeout + passage}
}

// ProcessHook implements [redis.Hook].
func (q queue) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !queues(ctx, cmd) {
			return next(ctx, cmd)
		}
		if err := q.enter(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		defer q.leave()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook]: a GET may come with its PTTL.
func (q queue) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !queues(ctx, cmds[0]) {
			return next(ctx, cmds)
		}
		if err := q.enter(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		defer q.leave()
		return next(ctx, cmds)
	}
}

func (q queue) enter(ctx context.Context) error {
	timer := time.NewTimer(q.limit)
	defer timer.Stop()
	select {
	case q.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("no connection was free within %v", q.limit)
	}
}

func (q queue) leave() { <-q.turns }

// queues tells the herd's commands from a winner's.
func queues(ctx context.Context, cmd redis.Cmder) bool {
	switch name, _ := CommandOf(ctx); cmd.Name() { // a handshake has the context of the command that needs it
	case "get":
		return cache.ReadOf(ctx) != cache.Recheck
	case "set":
		return name == string(CommandLock)
	}
	return false
}

// DialHook implements [redis.Hook].
func (queue) DialHook(next redis.DialHook) redis.DialHook { return next }
