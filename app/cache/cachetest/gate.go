package cachetest

import (
	"context"
	"sync"
	"time"

	"cachelab/app/cache"
)

// BlindRecheck is a store that answers a miss to every re-check, as if the strategy had none. The command is sent
// all the same, so that what Redis counts is what the ledger holds.
type BlindRecheck struct {
	cache.Store
	// Hidden, if set, is told of each re-check that had found the value.
	Hidden func(ctx context.Context)
}

// Get implements cache.Store.
func (b BlindRecheck) Get(ctx context.Context, key string) (string, bool, error) {
	value, found, err := b.Store.Get(ctx, key)
	if cache.ReadOf(ctx) != cache.Recheck {
		return value, found, err
	}
	if found && b.Hidden != nil {
		b.Hidden(ctx)
	}
	return "", false, err
}

// HoldBeforeLock returns a store that holds k workers between their miss and their lock attempt, until another
// has filled and unlocked; then it lets them on, one at a time. It is for one expiry cycle. A held worker whose
// context ends leaves with the reason.
func HoldBeforeLock(store cache.Store, k int) cache.Store {
	return &gate{Store: store, hold: k, filled: make(chan struct{}), turn: make(chan struct{}, 1)}
}

type gate struct {
	cache.Store
	filled chan struct{} // closed after the first unlock
	turn   chan struct{} // holds the turn of one held worker

	mu     sync.Mutex
	hold   int    // how many are still to be held
	opened bool   // filled is closed
	token  string // of the held worker whose turn it is
}

func (g *gate) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	if !g.takeHold() {
		return g.Store.Lock(ctx, key, token, ttl)
	}
	select {
	case <-g.filled:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	holder, err := g.Store.Lock(ctx, key, token, ttl)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || holder != token {
		<-g.turn // it will not unlock
	} else {
		g.token = token
	}
	return holder, err
}

func (g *gate) takeHold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == 0 {
		return false
	}
	g.hold--
	return true
}

func (g *gate) Unlock(ctx context.Context, key, token string) (bool, error) {
	released, err := g.Store.Unlock(ctx, key, token)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.opened:
		g.opened = true
		close(g.filled)
	case g.token == token:
		g.token = ""
		<-g.turn
	}
	return released, err
}
