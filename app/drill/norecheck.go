package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
)

const (
	gatedRound = 1
	gated      = 5 // workers held between their miss and their lock attempt
)

func noRecheck() Drill {
	return Drill{
		Name:  "no-recheck",
		Short: "the winner does not look again under the lock: each worker that locks late calls once more",
		Long: `The re-check is answered with a miss, as if there were none. Round 1: a gate holds 5 workers between their miss and
their lock attempt until another has filled: exactly 5 calls too many. The other rounds are left to nature: a waiter that
polled just before the fill and locks just after it calls again. --rounds 101 gives 100 of them.`,
		Settings:  map[string]string{"rounds": "101", "ttl": "600ms", "backend-latency": "120ms", "quiet": "true"},
		AnyRounds: true,
		Start:     startNoRecheck,
	}
}

// afterFill keeps the winner of the gated round between its SET and its DEL until all who are not held have their
// value: nobody but the held locks late.
type afterFill struct {
	cache.Store
	others chan struct{} // closed when they have
}

func (a afterFill) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := a.Store.Set(ctx, key, value, ttl)
	if herd.WorkerFrom(ctx).Round == gatedRound {
		select {
		case <-a.others:
		case <-ctx.Done():
		}
	}
	return replaced, found, err
}

func startNoRecheck(s Scene) Faults {
	others := make(chan struct{})
	var once sync.Once
	var served, hidden perRound
	waiters := s.Workers - gated - 1
	if waiters < 1 {
		close(others)
	}
	return Faults{
		Store: func(next cache.Store) cache.Store {
			blind := cachetest.BlindRecheck{Store: afterFill{next, others}, Hidden: func(ctx context.Context) {
				hidden.add(ctx)
				s.Report(ctx, "the re-check found the value, and is answered with a miss")
			}}
			return cachetest.HoldBeforeLock(blind, min(gated, s.Workers-1))
		},
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				result, err := next.Get(ctx, key)
				if herd.WorkerFrom(ctx).Round == gatedRound && served.add(ctx) == waiters {
					once.Do(func() { close(others) })
				}
				return result, err
			})
		}),
		Masked: hidden.total,
		Judge: func(l herd.Ledger) herd.Verdict {
			gate := round(l, gatedRound)
			extra, natural := l.BackendCalls-gate.BackendCalls-(l.Expiries-gate.Expiries), l.Rounds-1
			return verdict(l, fmt.Sprintf("with %d workers held before their lock %d calls where 1 would do; %d calls too many in %d rounds left to nature",
				gated, gate.BackendCalls, extra, natural),
				expect(len(l.ByRound) == s.Rounds && s.Workers > gated, "that takes %d rounds and more than %d workers", s.Rounds, gated),
				expect(gate.BackendCalls == 1+gated && gate.Expiries == 1, "%d calls in the gated round, not %d", gate.BackendCalls, 1+gated),
				expect(l.Redundant == 0 && l.Repeated == gate.BackendCalls-gate.Expiries+extra, "%d of the calls too many began soon after an answer, %d beside another",
					l.Repeated, l.Redundant),
				expect(extra >= 0 && l.BackendCalls == l.Acquired, "%d calls with %d locks", l.BackendCalls, l.Acquired),
				expect(l.Outcomes[cache.Failed] == 0 && l.Lost == 0, "%d requests failed and %d locks were lost", l.Outcomes[cache.Failed], l.Lost))
		},
	}
}
