package herd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Source is the traffic of one process.
type Source interface {
	// Flow lets it flow for a time (0: until ctx ends), and returns when no request is on its way. It tells each response, one at a
	// time. An error says that the process was lost; what it told before counts.
	Flow(ctx context.Context, length time.Duration, tell func(Response)) (Flowed, error)
}

// Flowed is what a phase came to in one process, beside its responses: see [Phase].
type Flowed struct {
	Elapsed time.Duration
	NotSent int
}

// Streams are the traffic of several processes, as a [Stream] is that of one. Each process has expiry cycles of its own, all with
// numbers of their own.
type Streams struct {
	Workers int // of all processes
	Sources []Source
	Results

	mu      sync.Mutex // guards all below
	fold    *Fold
	phase   Phase
	flowed  time.Duration
	notSent int
}

// Flow lets all processes flow at the same time. The error names those that were lost: the others flow to their end.
func (s *Streams) Flow(ctx context.Context, length time.Duration) (Phase, error) {
	flowed, errs := make([]Flowed, len(s.Sources)), make([]error, len(s.Sources))
	s.mu.Lock()
	s.phase = Phase{}
	s.folded()
	s.mu.Unlock()
	var all sync.WaitGroup
	for i, source := range s.Sources {
		all.Go(func() { flowed[i], errs[i] = source.Flow(ctx, length, s.add) })
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range flowed {
		s.phase.Elapsed = max(s.phase.Elapsed, one.Elapsed)
		s.phase.NotSent += one.NotSent
	}
	s.notSent += s.phase.NotSent
	s.flowed += s.phase.Elapsed
	err := errors.Join(errs...)
	if err != nil {
		err = fmt.Errorf("in the traffic: %w", err)
	}
	return s.phase, err
}

func (s *Streams) add(r Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folded().Add(r)
	s.phase.Sum.add(r)
	s.keep(r)
}

// Ledger returns the ledger of the phases so far. The streams must not flow.
func (s *Streams) Ledger() Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	ledger := s.folded().Ledger()
	ledger.NotSent, ledger.Processes = s.notSent, len(s.Sources)
	ledger.InRounds = s.flowed
	return ledger
}

// folded is what there is so far. The caller holds the mutex.
func (s *Streams) folded() *Fold {
	if s.fold == nil {
		s.fold = NewFold(s.Workers, s.TTL).Across()
	}
	return s.fold
}
