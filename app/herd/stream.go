package herd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"cachelab/app/cache"
)

// Stream is the herd without a barrier: workers that read on their own, each with a pause after each answer, so
// that the key expires under traffic. It flows in phases; its ledger is of all of them.
//
// A round of a stream is one expiry cycle: the reads of the cached value, then the misses, up to the fill. Requests
// that are still on their way when the first has its value belong to the round that they began in; those that come
// after it begin the next.
type Stream struct {
	Strategy cache.Strategy
	Key      string
	Workers  int // at least 1
	// Think is the pause between two requests of a worker, more than 0; each is spread by half of it to both sides, so that
	// the workers are not in step.
	Think time.Duration
	// Rate, if more than 0, makes the traffic open: so many requests a second, each due at its own time ([Schedule], by Seed), and
	// nobody thinks. Latency counts from that time. The requests go to the workers in turn.
	Rate float64
	Seed uint64
	// Process is the number of this process, from 1, of Processes; both 0 if the run has only one. They divide open traffic among
	// them, and have the numbers of the workers and of the rounds in turn.
	Process, Processes int
	// Patience is how long the requests on their way may still take when the context of Flow ends.
	Patience time.Duration
	Observer Observer
	Results

	works sync.WaitGroup // in the background

	mu      sync.Mutex // guards all below
	fold    *Fold
	phase   Phase
	begun   int           // rounds
	flowed  time.Duration // in all phases
	notSent int           // likewise
	current *cycle        // takes new requests; nil until there is one
}

// Phase is what one phase of a stream came to.
type Phase struct {
	Sum
	Elapsed time.Duration // the last answers included
	NotSent int           // requests that were due while too many were on their way
}

// cycle is a round of a stream on its way.
type cycle struct {
	Round
	begin    sync.Once // sets the two below
	ctx      context.Context
	end      func(RoundSummary)
	inFlight int
	steps    int
}

// A round that took this many steps is followed by the next, also within an expiry cycle: a trace must stay small.
// The usual round of 20 workers has about 700.
const (
	roundSteps     = 1100
	stepsPerWorker = roundSteps / 50 // of larger herds, which have more than one trace
)

// Flow lets the workers read for as long as the length says (0: no limit) or until ctx ends, and returns when no
// request is on its way, and no work in the background. The context of requests outlives ctx by the stream's patience: whoever asked gets an
// answer.
func (s *Stream) Flow(ctx context.Context, length time.Duration) Phase {
	started := time.Now()
	s.begin()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if length > 0 {
		asking, stop = context.WithTimeout(ctx, length)
		defer stop()
	}
	requests, done := outlive(ctx, s.Patience)
	defer done()

	if s.Rate > 0 {
		s.open(ctx, requests, length)
	} else {
		s.closed(asking, requests)
	}
	s.works.Wait()
	return s.finish(time.Since(started))
}

// closed lets each worker think between its requests, until asking ends. It returns when all have their answers.
func (s *Stream) closed(asking, requests context.Context) {
	var workers sync.WaitGroup
	for i := range s.Workers {
		workers.Go(func() {
			// The first requests are spread over a whole pause.
			for pause := rand.N(s.Think); cache.Sleep(asking, pause) == nil; pause = s.Think/2 + rand.N(s.Think) {
				s.request(requests, i+1, time.Now())
			}
		})
	}
	workers.Wait()
}

// Ledger returns the ledger of the phases so far. The stream must not flow.
func (s *Stream) Ledger() Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	ledger := s.folded().Ledger()
	ledger.NotSent = s.notSent
	ledger.InRounds = s.flowed // rounds overlap, and there are gaps between them
	return ledger
}

func (s *Stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = Phase{}
}

// folded is what there is so far. The caller holds the mutex.
func (s *Stream) folded() *Fold {
	if s.fold == nil {
		s.fold = NewFold(s.Workers, s.TTL)
	}
	return s.fold
}

func (s *Stream) finish(elapsed time.Duration) Phase {
	s.mu.Lock()
	end := func() {}
	if s.current != nil {
		end = s.close(s.current)
	}
	s.phase.Elapsed = elapsed
	s.notSent += s.phase.NotSent
	s.flowed += elapsed
	phase := s.phase
	s.mu.Unlock()
	end()
	return phase
}

// request is one Get of one worker, due at that time, in the round of the moment.
func (s *Stream) request(ctx context.Context, number int, due time.Time) {
	c := s.join(ctx)
	number += max(0, s.Process-1) * s.Workers
	r := &request{worker: Worker{Round: c.Number, Number: number, Process: s.Process}, work: s.work(c), started: due}
	var response Response
	r.ask(c.ctx, &question{s.Observer, s.Strategy, s.Key, s.Results}, &response)
	s.leave(c, response)
}

// join returns the round that a request begins in. The observer is told of it outside of the lock: it holds up those who
// wait for this round's context, and nobody else.
func (s *Stream) join(ctx context.Context) *cycle {
	s.mu.Lock()
	if s.current == nil {
		s.begun++
		number := (s.begun-1)*max(1, s.Processes) + max(1, s.Process)
		s.current = &cycle{Round: Round{Number: number, Workers: s.Workers, Processes: 1}}
	}
	c := s.current
	c.inFlight++
	s.mu.Unlock()
	c.begin.Do(func() { c.ctx, c.end = s.Observer.Round(ctx, c.Round) })
	return c
}

func (s *Stream) leave(c *cycle, r Response) {
	end := func() {}
	defer func() { end() }() // outside of the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folded().Add(r)
	s.keep(r)
	c.steps += steps(r)
	c.inFlight--
	// Who missed and has its value knows that the cycle is over, whoever filled.
	filled := r.Err == nil && r.Work != Refresh && (r.Misses > 0 || r.Outcome == cache.Filled || r.Outcome == cache.Waited)
	if c == s.current && (filled || c.steps >= max(roundSteps, stepsPerWorker*s.Workers)) {
		s.current = nil
	}
	if c != s.current && c.inFlight == 0 {
		end = s.close(c)
	}
}

// close ends a round that has all its answers. What it returns tells the observer, once the lock is free.
func (s *Stream) close(c *cycle) (end func()) {
	if c == s.current {
		s.current = nil
	}
	summary := s.folded().Close(c.Number)
	s.phase.Sum.Add(summary.Sum)
	return func() { c.end(summary) }
}

// steps is about the number of spans of a request.
func steps(r Response) int {
	n := 1 + r.Hits + r.Misses + r.Acquired + r.Held + r.Released + r.Lost + r.ReleasesRefused + r.ReleasesUnanswered + 2*r.BackendCalls
	if r.Misses > 0 {
		n += 2
	}
	return n
}

// outlive returns a context that ends when patience has passed after the end of ctx.
func outlive(ctx context.Context, patience time.Duration) (context.Context, func()) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cache.Sleep(inner, patience) == nil {
			cancel(context.Cause(ctx))
		}
	})
	return inner, func() {
		stop()
		cancel(nil)
	}
}
