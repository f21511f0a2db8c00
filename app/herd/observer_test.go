package herd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// slowObserver holds up whoever tells it of the end of round 1, until it is released.
type slowObserver struct {
	herd.NoObserver
	release chan struct{}
}

func (o slowObserver) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	return ctx, func(herd.RoundSummary) {
		if round.Number == 1 {
			<-o.release
		}
	}
}

// missing is a strategy that misses each time: each of its requests ends a round of a stream. It tells of the tenth.
type missing struct {
	mu    sync.Mutex
	asked int
	tenth chan struct{}
}

func (m *missing) Get(context.Context, string) (*cache.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked++; m.asked == 10 {
		close(m.tenth)
	}
	r := &cache.Result{Outcome: cache.Filled}
	r.Misses, r.BackendCalls, r.SetsAbsent = 1, 1, 1
	return r, nil
}

func TestAStreamDoesNotWaitForAnObserver(t *testing.T) {
	observer, strategy := slowObserver{release: make(chan struct{})}, &missing{tenth: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // held up until the others have asked ten times
		select {
		case <-strategy.tenth:
		case <-time.After(10 * time.Second):
			t.Error("nobody asks while the observer is slow")
		}
		close(observer.release)
		stop()
	}()
	s := &herd.Stream{Strategy: strategy, Key: "key", Workers: 2, Think: time.Millisecond, Observer: observer}
	phase := s.Flow(ctx, 0)
	inRounds := 0 // two that ask at the same time may share one
	for _, round := range s.Ledger().ByRound {
		inRounds += round.Requests
	}
	if strategy.asked < 10 || phase.Requests != strategy.asked || inRounds != strategy.asked {
		t.Errorf("%d asked, %d requests, %d of them in %d rounds", strategy.asked, phase.Requests, inRounds, s.Ledger().Rounds)
	}
}
