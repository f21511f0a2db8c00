// Package cachetest has a store in memory, a scripted backend and gates, for tests of strategies and for drills.
package cachetest

import (
	"context"
	"sync"
	"time"

	"cachelab/app/cache"
)

// Store implements cache.Store in memory. It expires by the time package's clock, so that it lives in a
// synctest bubble too.
type Store struct {
	mu      sync.Mutex
	entries map[string]entry
	ears    map[string]map[chan cache.Wake]bool // by channel
}

type entry struct {
	value   string
	expires time.Time
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{entries: map[string]entry{}, ears: map[string]map[chan cache.Wake]bool{}}
}

// Peek returns what is at key, "" if nothing is.
func (s *Store) Peek(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, _ := s.live(key)
	return value
}

// live returns the entry of key unless it has expired. The caller holds the mutex.
func (s *Store) live(key string) (string, bool) {
	e, ok := s.entries[key]
	if !ok || !time.Now().Before(e.expires) {
		return "", false
	}
	return e.value, true
}

// Get implements cache.Store.
func (s *Store) Get(ctx context.Context, key string) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.live(key)
	return value, found, ctx.Err()
}

// GetTTL implements cache.Store. As in Redis, what is left is in whole milliseconds.
func (s *Store) GetTTL(ctx context.Context, key string) (string, time.Duration, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.live(key)
	if !found {
		return "", 0, false, ctx.Err()
	}
	return value, time.Until(s.entries[key].expires).Truncate(time.Millisecond), true, ctx.Err()
}

// Set implements cache.Store.
func (s *Store) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	replaced, found := s.live(key)
	s.entries[key] = entry{value, time.Now().Add(ttl)}
	return replaced, found, nil
}

// Lock implements cache.Store.
func (s *Store) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if holder, held := s.live(key); held {
		return holder, nil
	}
	s.entries[key] = entry{token, time.Now().Add(ttl)}
	return token, nil
}

// Unlock implements cache.Store.
func (s *Store) Unlock(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if holder, held := s.live(key); !held || holder != token {
		return false, nil
	}
	delete(s.entries, key)
	return true, nil
}

// StoreAndUnlock implements cache.Store.
func (s *Store) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return cache.Stored{}, err
	}
	var stored cache.Stored
	holder, held := s.live(lockKey)
	replaced, found := s.live(key)
	if stored.Released = held && holder == token; stored.Released {
		delete(s.entries, lockKey)
	}
	if stored.Stored = stored.Released || !found; stored.Stored {
		stored.Replaced, stored.Found = replaced, found
		s.entries[key] = entry{value, time.Now().Add(ttl)}
	}
	return stored, nil
}

// Publish implements cache.Store.
func (s *Store) Publish(ctx context.Context, channel string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for ear := range s.ears[channel] {
		wake(ear, cache.Message)
	}
	return nil
}

// Listen implements cache.Listener. The subscription is confirmed at once.
func (s *Store) Listen(channel string) (<-chan cache.Wake, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ear := make(chan cache.Wake, 1)
	if s.ears[channel] == nil {
		s.ears[channel] = map[chan cache.Wake]bool{}
	}
	s.ears[channel][ear] = true
	wake(ear, cache.Confirmed)
	return ear, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ears[channel], ear)
	}
}

func wake(ear chan cache.Wake, by cache.Wake) {
	select {
	case ear <- by:
	default: // it is awake already
	}
}

// Loader implements cache.Loader by a function of the call's number, and counts.
type Loader struct {
	// Answer is called for the n-th call, from 1.
	Answer func(ctx context.Context, n int) (string, error)

	mu                    sync.Mutex
	calls, inFlight, peak int
}

// Load implements cache.Loader.
func (l *Loader) Load(ctx context.Context, _ string) (string, error) {
	l.mu.Lock()
	l.calls++
	n := l.calls
	l.inFlight++
	l.peak = max(l.peak, l.inFlight)
	l.mu.Unlock()

	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inFlight--
	}()
	return l.Answer(ctx, n)
}

// Calls returns how many calls there were.
func (l *Loader) Calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// InFlight returns how many calls are on their way.
func (l *Loader) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// Peak returns the most calls in flight at once.
func (l *Loader) Peak() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peak
}

// Takes returns an answer that comes after d, unless ctx ends before.
func Takes(d time.Duration, value string) func(context.Context, int) (string, error) {
	return func(ctx context.Context, _ int) (string, error) {
		select {
		case <-time.After(d):
			return value, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
