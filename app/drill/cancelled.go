package drill

import (
	"context"
	"errors"
	"fmt"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// ErrCallerLeft is why the cancelled winner's context ends.
var ErrCallerLeft = fmt.Errorf("the caller left (drill): %w", context.Canceled)

func cancelledWinner() Drill {
	return Drill{
		Name:  "cancelled-winner",
		Short: "the winner's request is cancelled in mid-fill: it still unlocks, and the next waiter fills",
		Long: `In each round the first winner's context is cancelled while its backend call runs, as when its client hangs up. The
release does not use that context, so the lock is free at once; the next waiter takes over.`,
		Settings: map[string]string{"rounds": "2", "ttl": "1s", "backend-jitter": "0"},
		Start:    startCancelledWinner,
	}
}

type cancelKey struct{}

func startCancelledWinner(s Scene) Faults {
	var tries, left perRound
	return Faults{
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				result, err := next.Get(context.WithValue(ctx, cancelKey{}, cancel), key)
				if errors.Is(err, ErrCallerLeft) {
					left.add(ctx)
				}
				return result, err
			})
		}),
		Loader: func(next cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, key string) (string, error) {
				cancel, ok := ctx.Value(cancelKey{}).(context.CancelCauseFunc)
				if ok && tries.add(ctx) == 1 {
					_ = cache.Sleep(ctx, s.Latency/2)
					s.Report(ctx, "the winner's request is cancelled in mid-fill")
					cancel(ErrCallerLeft)
				}
				return next.Load(ctx, key)
			})
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			checks := []check{tookPlace(l, s.Rounds)}
			for n := range s.Rounds {
				r := round(l, n+1)
				checks = append(checks,
					expect(r.BackendCalls == 2 && r.BackendErrors == 1 && r.Expiries == 1 && left.of(n+1) == 1 && r.Outcomes[cache.Failed] == 1,
						"round %d had %d calls, %d of them failed, and %d errors", n+1, r.BackendCalls, r.BackendErrors, r.Outcomes[cache.Failed]))
			}
			checks = append(checks,
				expect(l.Lost == 0 && l.Acquired == l.Released, "%d locks acquired, %d released, %d lost", l.Acquired, l.Released, l.Lost),
				expect(l.StoreErrors == 0, "%d store errors", l.StoreErrors))
			return verdict(l, fmt.Sprintf("%d winners were cancelled in mid-fill, %d of %d locks were released, and the next waiter filled each time",
				l.Outcomes[cache.Failed], l.Released, l.Acquired), checks...)
		},
	}
}
