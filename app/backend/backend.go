// Package backend simulates the slow price service that the cache protects. It has a latency, a capacity
// beyond which calls queue (so that a herd hurts), and failures on demand; and it counts.
package backend

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"cachelab/app/price"
)

// ErrUnavailable is the injected failure.
var ErrUnavailable = errors.New("price service unavailable")

// Config describes the service.
type Config struct {
	Latency  time.Duration // of one call, without the time in the queue
	Jitter   float64       // fraction (0 to 1) by which a call's latency varies to both sides
	Capacity int           // calls that run at once; the others queue. 0 means no limit
	Failures Failures      // which calls fail
	TTL      time.Duration // of a cached answer: who asks again within half of it repeats a call
	Seed     uint64        // of the jitter and of the failures given in percent
	// OnCall, if set, is told of each call when it ends, with the caller's context.
	OnCall func(context.Context, Call)
}

// Call is what the service knows about one call.
type Call struct {
	Number   int           // counts from 1
	InFlight int           // callers inside when it came, itself included
	Queued   time.Duration // waited for capacity
	// Redundant: another call for the same key was in flight when it came. Repeated: none was, but the newest answer
	// for the key was younger than half the TTL.
	Redundant, Repeated bool
	Err                 error
}

// Stats is what the service counted.
type Stats struct {
	Calls    int
	InFlight int // callers inside now, running or queued
	Queued   int // those of them that queue
	Peak     int // the most in flight at once
	// Redundant and Repeated calls: those that the cache should have spared. See [Call].
	Redundant, Repeated int
}

// Service is the backend. Use [New].
type Service struct {
	config Config
	id     string // of its generations
	began  time.Time
	slots  chan struct{} // nil without a limit

	mu      sync.Mutex // guards all below
	stats   Stats
	recent  recentPeak
	keys    map[string]*keyState
	answers []time.Duration // by number - 1: when it was given, since began; 0 for none
}

// keyState is what tells whether a call for a key is one too many.
type keyState struct {
	inFlight int
	answered time.Time // when the newest answer came; a failure is none
}

// New returns a service. The config must be valid: see the flags of the command line.
func New(config Config) *Service {
	s := &Service{config: config, id: strings.ToLower(crypto.Text()[:8]), began: time.Now(), recent: newRecentPeak(), keys: map[string]*keyState{}}
	if config.Capacity > 0 {
		s.slots = make(chan struct{}, config.Capacity)
	}
	return s
}

// Load answers with the price of key as a [price.Value], or fails as configured, or when ctx ends. It implements cache.Loader.
func (s *Service) Load(ctx context.Context, key string) (string, error) {
	arrived := time.Now()
	call := s.enter(key)
	defer s.leave(key)

	call.Err = s.acquire(ctx)
	call.Queued = time.Since(arrived)
	if call.Err == nil {
		call.Err = s.serve(ctx, call.Number)
		s.release()
	}
	answer := Answer(key)
	if call.Err == nil {
		answer.Generation, answer.Delta = s.answer(key, call.Number), time.Since(arrived)
	}
	if s.config.OnCall != nil {
		s.config.OnCall(ctx, call)
	}
	if call.Err != nil {
		return "", fmt.Errorf("call %d: %w", call.Number, call.Err)
	}
	return answer.String(), nil
}

// Answer is an answer for key, of no backend.
func Answer(key string) price.Value { return price.Value{Price: key + " costs 19.99 EUR"} }

// IsAnswer reports whether value is an answer for key, of any instance of the service.
func IsAnswer(key, value string) bool {
	v, known := price.Parse(value)
	return known && v.Price == Answer(key).Price
}

// Answered returns when the service gave the answer that value is; the zero time if it is none of its own.
func (s *Service) Answered(value string) time.Time {
	v, known := price.Parse(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !known || v.Backend != s.id || v.Number < 1 || v.Number > len(s.answers) || s.answers[v.Number-1] == 0 {
		return time.Time{}
	}
	return s.began.Add(s.answers[v.Number-1])
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// RecentPeak returns the most callers in flight in the last 2 s. Asking changes nothing.
func (s *Service) RecentPeak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.peak(s.stats.InFlight)
}

func (s *Service) enter(key string) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Calls++
	s.answers = append(s.answers, 0)
	s.stats.InFlight++
	s.stats.Peak = max(s.stats.Peak, s.stats.InFlight)
	s.recent.note(s.stats.InFlight)
	call := Call{Number: s.stats.Calls, InFlight: s.stats.InFlight}
	call.Redundant, call.Repeated = s.tooMany(key)
	return call
}

// tooMany counts a call for the key in, and tells whether the cache should have spared it.
func (s *Service) tooMany(key string) (redundant, repeated bool) {
	k := s.keys[key]
	if k == nil {
		k = &keyState{}
		s.keys[key] = k
	}
	redundant = k.inFlight > 0
	repeated = !redundant && !k.answered.IsZero() && time.Since(k.answered) < s.config.TTL/2
	k.inFlight++
	if redundant {
		s.stats.Redundant++
	}
	if repeated {
		s.stats.Repeated++
	}
	return redundant, repeated
}

// answer notes an answer, and returns its generation.
func (s *Service) answer(key string, number int) price.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key].answered = time.Now()
	s.answers[number-1] = max(1, s.keys[key].answered.Sub(s.began))
	return price.Generation{Backend: s.id, Number: number}
}

func (s *Service) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.note(s.stats.InFlight) // it stood until now
	s.stats.InFlight--
	s.keys[key].inFlight--
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
func (s *Service) serve(ctx context.Context, number int) error {
	latency, fails := s.config.fate(number)
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if fails {
		return ErrUnavailable
	}
	return nil
}

// fate is what the seed holds for the call of this number, whenever it comes and whoever else is there.
func (c Config) fate(number int) (latency time.Duration, fails bool) {
	random := rand.New(rand.NewPCG(c.Seed, uint64(number)))
	spread := 1 + c.Jitter*(2*random.Float64()-1)
	return time.Duration(float64(c.Latency) * spread), c.Failures.hit(number, random.Float64())
}
