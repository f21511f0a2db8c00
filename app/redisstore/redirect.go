package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

const (
	// maxHops is how often a command is sent on until the answer is taken for an error.
	maxHops = 16
	// tryAgain is the pause before a node that has only some of the keys yet is asked again.
	tryAgain = 50 * time.Millisecond
)

// redirect is the innermost hook of the client of a cluster's node. It sends a command on to where the node says, so that it is
// one command to all who watch, wherever it is executed. A node that fails is not asked again: that is the strategy's to do.
type redirect struct {
	nodes *nodes
	addr  string // of the node
}

// sentOn marks the context of a command that was sent on: who watches has seen it already.
type sentOn struct{}

// ProcessHook implements [redis.Hook].
func (r redirect) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		cmd.SetErr(next(ctx, cmd))
		r.follow(ctx, cmd)
		return cmd.Err()
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (r redirect) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		_ = next(ctx, cmds) // each command has its own
		for _, cmd := range cmds {
			r.follow(ctx, cmd)
			if err == nil {
				err = cmd.Err()
			}
		}
		return err
	}
}

// DialHook implements [redis.Hook].
func (redirect) DialHook(next redis.DialHook) redis.DialHook { return next }

// follow sends the command on for as long as it is not executed: a node that says so has done nothing.
func (r redirect) follow(ctx context.Context, cmd redis.Cmder) {
	if ctx.Value(sentOn{}) != nil {
		return
	}
	at, asking := r.addr, false
	for range maxHops {
		err := cmd.Err()
		if err == nil || errors.Is(err, redis.Nil) || ctx.Err() != nil {
			return
		}
		word, _, _ := strings.Cut(err.Error(), " ")
		if to, ok := redis.IsAskError(err); ok {
			at, asking = reached(r.addr, to), true
		} else {
			r.nodes.lookAround(ctx) // a node that is gone may have been replaced
			if to, ok := redis.IsMovedError(err); ok {
				at, asking = reached(r.addr, to), false
			} else if !redis.IsTryAgainError(err) || cache.Sleep(ctx, tryAgain) != nil {
				return
			}
		}
		if tell := r.nodes.redirected; tell != nil {
			tell(ctx, word, at)
		}
		r.send(ctx, at, asking, cmd)
	}
}

func (r redirect) send(ctx context.Context, addr string, asking bool, cmd redis.Cmder) {
	ctx = context.WithValue(ctx, sentOn{}, true)
	client := r.nodes.at(addr)
	if !asking {
		_ = client.Process(ctx, cmd) // the command has its error
		return
	}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		_ = p.Do(ctx, "ASKING")
		return p.Process(ctx, cmd)
	})
	if err != nil && cmd.Err() == nil {
		cmd.SetErr(err)
	}
}
