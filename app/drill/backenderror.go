package drill

import (
	"context"
	"errors"
	"fmt"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// The rounds of the drill.
const (
	oneFails = 1 + iota
	allFail
	healed
)

func backendError() Drill {
	return Drill{
		Name:  "backend-error",
		Short: "the winner's call fails, then all calls of a cycle: one at a time, and the next cycle heals",
		Long: `Round 1: the winner's backend call fails; the winner releases the lock at once, and the next waiter fills. Round 2:
every call fails; the workers take turns, one call at a time and one for each, and get the error. Round 3: the backend
is back, and one call fills.`,
		Settings: map[string]string{"workers": "20", "rounds": "3", "ttl": "1s", "backend-latency": "50ms"},
		Start:    startBackendError,
	}
}

func startBackendError(s Scene) Faults {
	watch := newCalls()
	var tries, named perRound
	return Faults{
		Loader: func(next cache.Loader) cache.Loader {
			return watch.around(faultyLoader(func(ctx context.Context, key string) (string, error) {
				try, current := tries.add(ctx), herd.WorkerFrom(ctx).Round
				value, err := next.Load(ctx, key)
				if err == nil && (current == allFail || current == oneFails && try == 1) {
					s.Report(ctx, "the backend fails")
					return "", ErrBackendDown
				}
				return value, err
			}))
		},
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				result, err := next.Get(ctx, key)
				if errors.Is(err, ErrBackendDown) || errors.Is(err, cache.ErrWaitTimeout) {
					named.add(ctx)
				}
				return result, err
			})
		}),
		Judge: func(l herd.Ledger) herd.Verdict {
			one, all := round(l, oneFails), round(l, allFail)
			text := fmt.Sprintf("after one failed call the next waiter filled (%d calls, %d error); while all failed, %d workers made %d calls, %d in flight at peak, and got the error; then one call healed it",
				one.BackendCalls, one.Outcomes[cache.Failed], all.Workers, all.BackendCalls, watch.peak(allFail))
			return verdict(l, text, tookPlace(l, healed),
				expect(one.BackendCalls == 2 && one.BackendErrors == 1 && one.Outcomes[cache.Failed] == 1 && named.of(oneFails) == 1 && one.Expiries == 1,
					"round 1 had %d calls, %d of them failed, and %d errors", one.BackendCalls, one.BackendErrors, one.Outcomes[cache.Failed]),
				expect(watch.peak(oneFails) == 1 && watch.peak(allFail) == 1, "calls ran side by side"),
				expect(all.BackendCalls == all.BackendErrors && all.BackendCalls >= 1 && all.BackendCalls == all.Workers-all.Timeouts,
					"round 2 had %d calls and %d timeouts", all.BackendCalls, all.Timeouts),
				expect(named.of(allFail) == all.Workers, "%d of %d workers got the named error", named.of(allFail), all.Workers),
				expect(l.Lost == 0 && l.Acquired == l.Released, "%d locks lost", l.Lost),
				clean(l, healed))
		},
	}
}
