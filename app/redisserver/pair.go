package redisserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Pair is a master and its replica, which end with this process. Make one with [NewPair], and Close it.
type Pair struct {
	master, replica *Server
	promoted        atomic.Bool
}

// pairLimit bounds the time in which a replica copies what its master has.
const pairLimit = 10 * time.Second

// NewPair starts both, and returns when the replica follows. The error is [ErrNone] if there is no redis-server to start.
func NewPair(ctx context.Context) (*Pair, error) {
	p := &Pair{}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Pair) start(ctx context.Context) (err error) {
	if p.master, err = New(ctx); err != nil {
		return err
	}
	if p.replica, err = New(ctx, "--replicaof", "127.0.0.1", strconv.Itoa(p.master.Port)); err != nil {
		return err
	}
	client := p.replica.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, pairLimit)
	defer cancel()
	for !strings.Contains(client.Info(ctx, "replication").Val(), "master_link_status:up") {
		if ctx.Err() != nil {
			return fmt.Errorf("start a replica: it did not follow its master: %w", context.Cause(ctx))
		}
		time.Sleep(lookAgain)
	}
	return nil
}

// Master returns the address of the one that takes writes, host:port.
func (p *Pair) Master(context.Context) (string, error) {
	if p.promoted.Load() {
		return p.replica.Addr(), nil
	}
	return p.master.Addr(), nil
}

// CutOff ends the replication: what the master is told from now on does not reach its replica.
func (p *Pair) CutOff(ctx context.Context) error {
	client := p.replica.client()
	defer client.Close()
	if err := client.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil { // where nobody listens
		return fmt.Errorf("cut the replica off: %w", err)
	}
	return nil
}

// FailOver makes the replica the master, and kills the one that was.
func (p *Pair) FailOver(ctx context.Context) error {
	client := p.replica.client()
	defer client.Close()
	if err := client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote the replica: %w", err)
	}
	p.promoted.Store(true)
	return p.master.Stop()
}

// Close stops both.
func (p *Pair) Close() error {
	var errs []error
	for _, s := range []*Server{p.master, p.replica} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
