package cachetest

import (
	"context"
	"sync"
	"time"

	"cachelab/app/cache"
)

// BlindRecheck is a store that answers a miss to every re-check, as if the strategy had none.
type BlindRecheck struct{ cache.Store }

// Get implements cache.Store.
func (b BlindRecheck) Get(ctx context.Context, key string) (string, bool, error) {
	value, found, err := b.Store.Get(ctx, key)
	if cache.ReadOf(ctx) == cache.Recheck {
		return "", false, err
	}
	return value, found, err
}

// HoldBeforeLock returns a store that holds k workers between their miss and their lock attempt, until another
// has filled and unlocked; then it lets them on, one at a time. It is for one expiry cycle.
func HoldBeforeLock(store cache.Store, k int) cache.Store {
	return &gate{Store: store, hold: k, filled: make(chan struct{}), turn: make(chan struct{}, 1)}
}

type gate struct {
	cache.Store
	filled chan struct{} // closed after the first unlock
	turn   chan struct{} // holds the turn of one held worker

	mu     sync.Mutex
	hold   int // how many are still to be held
	opened bool
}

func (g *gate) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	g.mu.Lock()
	held := g.hold > 0
	if held {
		g.hold--
	}
	g.mu.Unlock()
	if held {
		<-g.filled
		g.turn <- struct{}{}
	}
	return g.Store.Lock(ctx, key, token, ttl)
}

func (g *gate) Unlock(ctx context.Context, key, token string) (bool, error) {
	released, err := g.Store.Unlock(ctx, key, token)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.opened = true
		close(g.filled)
		return released, err
	}
	select {
	case <-g.turn:
	default:
	}
	return released, err
}
