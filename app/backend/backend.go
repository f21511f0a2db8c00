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
	// Probe, if set, watches the calls from the service's side.
	Probe Probe
}

// Call is what the service knows about one call.
type Call struct {
	Number   int           // counts from 1
	InFlight int           // callers inside when it came, itself included
	Queued   time.Duration // waited for capacity; 0 if there was a place
	// Redundant: another call for the same key was in flight when it came. Repeated: none was, but the newest answer
	// for the key was younger than half the TTL.
	Redundant, Repeated bool
	Answered            time.Time // the zero time if it was not
	Err                 error
}

// A Probe is told what a call goes through, from its arrival on. It is for telemetry: the service does not depend on it.
type Probe interface {
	// Arrive returns the context of the call inside the service, and what is told of its end.
	Arrive(ctx context.Context, c Call) (context.Context, func(Call))
	// Queue begins the wait for capacity, of a call that finds none; what it returns is told of the wait's end. So does
	// Compute, for the work.
	Queue(context.Context) func(error)
	Compute(context.Context) func(error)
}

// Service is the backend. Use [New], or [Runs] for a service that many runs share.
type Service struct {
	config Config
	id     string // of its generations
	began  time.Time
	slots  chan struct{} // nil without a limit

	mu      sync.Mutex // guards all below
	stats   Stats
	recent  recentPeak
	keys    map[string]*keyState
	answers []time.Duration // the newest ones, by number: when it was given, since began; 0 for none
}

// New returns a service. The config must be valid: see the flags of the command line.
func New(config Config) *Service { return newService(config, newSlots(config.Capacity)) }

func newService(config Config, slots chan struct{}) *Service {
	if config.Probe == nil {
		config.Probe = noProbe{}
	}
	return &Service{config: config, id: strings.ToLower(crypto.Text()[:8]), began: time.Now(), slots: slots,
		recent: newRecentPeak(), keys: map[string]*keyState{}}
}

func newSlots(capacity int) chan struct{} {
	if capacity == 0 {
		return nil
	}
	return make(chan struct{}, capacity)
}

// Load answers with the price of key as a [price.Value], or fails as configured, or when ctx ends. It implements cache.Loader.
func (s *Service) Load(ctx context.Context, key string) (string, error) {
	answer, call := s.Serve(ctx, key)
	if call.Err != nil {
		return "", fmt.Errorf("call %d: %w", call.Number, call.Err)
	}
	return answer.String(), nil
}

// Serve is one call: the answer, and what the service knows of the call, its error included.
func (s *Service) Serve(ctx context.Context, key string) (answer price.Value, call Call) {
	arrived := time.Now()
	call = s.enter(key)
	defer s.leave(key)
	inside, end := s.config.Probe.Arrive(ctx, call)

	call.Queued, call.Err = s.acquire(inside)
	if call.Err == nil {
		call.Err = s.compute(inside, call.Number)
		s.release()
	}
	if call.Err == nil {
		answer = Answer(key)
		call.Answered = s.answer(key, call.Number)
		answer.Generation, answer.Delta = price.Generation{Backend: s.id, Number: call.Number}, call.Answered.Sub(arrived)
	}
	end(call)
	if s.config.OnCall != nil {
		s.config.OnCall(ctx, call)
	}
	return answer, call
}

// Answer is an answer for key, of no backend.
func Answer(key string) price.Value { return price.Value{Price: key + " costs 19.99 EUR"} }

// IsAnswer reports whether value is an answer for key, of any instance of the service.
func IsAnswer(key, value string) bool {
	v, known := price.Parse(value)
	return known && v.Price == Answer(key).Price
}

// acquire takes a slot of the capacity, in the order of arrival.
func (s *Service) acquire(ctx context.Context) (queued time.Duration, err error) {
	if s.slots == nil {
		return 0, nil
	}
	select {
	case s.slots <- struct{}{}: // nobody queues where a slot is free
		return 0, nil
	default:
	}
	began, end := time.Now(), s.config.Probe.Queue(ctx)
	s.queued(+1)
	defer func() {
		s.queued(-1)
		end(err)
	}()
	select {
	case s.slots <- struct{}{}:
		return time.Since(began), nil
	case <-ctx.Done():
		return time.Since(began), context.Cause(ctx)
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

// compute is the work: waiting.
func (s *Service) compute(ctx context.Context, number int) (err error) {
	end := s.config.Probe.Compute(ctx)
	defer func() { end(err) }()
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

// noProbe is told nothing.
type noProbe struct{}

func (noProbe) Arrive(ctx context.Context, _ Call) (context.Context, func(Call)) {
	return ctx, func(Call) {}
}
func (noProbe) Queue(context.Context) func(error)   { return func(error) {} }
func (noProbe) Compute(context.Context) func(error) { return func(error) {} }

// fate is what the seed holds for the call of this number, whenever it comes and whoever else is there.
func (c Config) fate(number int) (latency time.Duration, fails bool) {
	random := rand.New(rand.NewPCG(c.Seed, uint64(number)))
	spread := 1 + c.Jitter*(2*random.Float64()-1)
	return time.Duration(float64(c.Latency) * spread), c.Failures.hit(number, random.Float64())
}
