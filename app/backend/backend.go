// Package backend simulates the slow price service that the cache protects. It has a latency, a capacity
// beyond which calls queue (so that a herd hurts), and failures on demand; and it counts.
package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrUnavailable is the injected failure.
var ErrUnavailable = errors.New("price service unavailable")

// Config describes the service.
type Config struct {
	Latency  time.Duration // of one call, without the time in the queue
	Jitter   float64       // fraction (0 to 1) by which a call's latency varies to both sides
	Capacity int           // calls that run at once; the others queue. 0 means no limit
	Failures Failures      // which calls fail
	Seed     uint64        // of the jitter and of the failures given in percent
	// OnCall, if set, is told of each call when it ends, with the caller's context.
	OnCall func(context.Context, Call)
}

// Call is what the service knows about one call.
type Call struct {
	Number   int           // counts from 1
	InFlight int           // callers inside when it came, itself included
	Queued   time.Duration // waited for capacity
	Err      error
}

// Stats is what the service counted.
type Stats struct {
	Calls    int
	InFlight int // callers inside now, running or queued
	Queued   int // those of them that queue
	Peak     int // the most in flight at once
}

// Service is the backend. Use [New].
type Service struct {
	config Config
	slots  chan struct{} // nil without a limit

	mu         sync.Mutex // guards all below
	rand       *rand.Rand
	stats      Stats
	recentPeak int
}

// New returns a service. The config must be valid: see the flags of the command line.
func New(config Config) *Service {
	s := &Service{config: config, rand: rand.New(rand.NewPCG(config.Seed, 0))}
	if config.Capacity > 0 {
		s.slots = make(chan struct{}, config.Capacity)
	}
	return s
}

// Load answers with the price of key, or fails as configured, or when ctx ends. It implements cache.Loader.
func (s *Service) Load(ctx context.Context, key string) (string, error) {
	call, latency := s.enter()
	defer s.leave()

	arrived := time.Now()
	call.Err = s.acquire(ctx)
	call.Queued = time.Since(arrived)
	if call.Err == nil {
		call.Err = s.serve(ctx, call.Number, latency)
		s.release()
	}
	if s.config.OnCall != nil {
		s.config.OnCall(ctx, call)
	}
	if call.Err != nil {
		return "", fmt.Errorf("call %d: %w", call.Number, call.Err)
	}
	return fmt.Sprintf("%s costs 19.99 EUR (answer %d)", key, call.Number), nil
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// RecentPeak returns the most callers in flight since it was asked last.
func (s *Service) RecentPeak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	peak := s.recentPeak
	s.recentPeak = s.stats.InFlight
	return peak
}

func (s *Service) enter() (Call, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Calls++
	s.stats.InFlight++
	s.stats.Peak = max(s.stats.Peak, s.stats.InFlight)
	s.recentPeak = max(s.recentPeak, s.stats.InFlight)
	spread := 1 + s.config.Jitter*(2*s.rand.Float64()-1)
	return Call{Number: s.stats.Calls, InFlight: s.stats.InFlight}, time.Duration(float64(s.config.Latency) * spread)
}

func (s *Service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.InFlight--
}

// acquire takes a slot of the capacity, in the order of arrival.
func (s *Service) acquire(ctx context.Context) error {
	if s.slots == nil {
		return nil
	}
	s.queued(+1)
	defer s.queued(-1)
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Service) release() {
	if s.slots != nil {
		<-s.slots
	}
}

func (s *Service) queued(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Queued += n
}

// serve is the work: waiting.
func (s *Service) serve(ctx context.Context, number int, latency time.Duration) error {
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.fails(number) {
		return ErrUnavailable
	}
	return nil
}

func (s *Service) fails(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.Failures.hit(number, s.rand)
}
