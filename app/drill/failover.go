package drill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

const (
	// faultRound is the round in which the servers change.
	faultRound = 2
	// takeOverLimit bounds the wait for a waiter that takes over.
	takeOverLimit = 5 * time.Second
)

func failover() Drill {
	return Drill{
		Name:  "failover",
		Short: "the master dies before its replica has the fill lock: the replica takes over, and so does a waiter: two calls",
		Long: `Redis answers before its replica has heard. Round 2: the winner gets the lock from the master; it does not reach the replica,
which is cut off at that moment. While the backend call runs, the replica is promoted and the master is gone. The waiters
find no lock on the new master, and one of them takes over: two calls in that cycle. Requests that were on their way may
fail. Round 3 is clean. No TTL and no token mends this: the lock was given away twice by two servers. The drill starts a
master and a replica of its own, and needs a redis-server for it.`,
		Settings: map[string]string{"rounds": "3", "ttl": "1s"},
		Owns:     Pair,
		Start:    startFailover,
	}
}

func startFailover(s Scene) Faults {
	all := newAllAnswered(s.Workers)
	var tries perRound
	second := make(chan struct{}) // closed when the one who takes over calls the backend
	var cut sync.Once
	var cutErr error
	return Faults{
		Store: func(next cache.Store) cache.Store {
			return &lockingStore{Store: next, before: func(ctx context.Context) error {
				cut.Do(func() {
					cutErr = s.Replica.CutOff(ctx)
					s.Report(ctx, "the replica is cut off: it does not hear of the lock")
				})
				return cutErr
			}, answered: all.add}
		},
		Loader: func(next cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, key string) (string, error) {
				if herd.WorkerFrom(ctx).Round != faultRound {
					return next.Load(ctx, key)
				}
				if n := tries.add(ctx); n > 1 {
					if n == 2 {
						close(second)
					}
					return next.Load(ctx, key)
				}
				if err := all.wait(ctx); err != nil {
					return "", err
				}
				s.Report(ctx, "the replica is promoted, and the master is gone")
				if err := s.Replica.FailOver(ctx); err != nil {
					return "", fmt.Errorf("fail over: %w", err)
				}
				select { // a fill that lasts until the other begins, on a busy machine too
				case <-second:
				case <-time.After(takeOverLimit):
				case <-ctx.Done():
				}
				return next.Load(ctx, key)
			})
		},
		Close: func() error { return cutErr },
		Judge: func(l herd.Ledger) herd.Verdict {
			r := round(l, faultRound)
			text := fmt.Sprintf("the new master did not know of the lock: %d backend calls in that cycle, one by the first winner and one by a waiter; "+
				"%d of %d requests failed meanwhile, the first winner's release was refused; the next round was clean", r.BackendCalls, r.Outcomes[cache.Failed], r.Workers)
			return verdict(l, text, tookPlace(l, faultRound+1),
				expect(r.BackendCalls == 2 && r.BackendErrors == 0 && r.Expiries == 1, "%d calls, %d of them failed, %d expiries", r.BackendCalls, r.BackendErrors, r.Expiries),
				expect(r.Lost == 1 && r.Acquired == r.Released+1, "%d locks acquired, %d released, %d lost", r.Acquired, r.Released, r.Lost),
				expect(r.StoreErrors > 0, "nobody noticed that the master was gone"),
				clean(l, faultRound-1), clean(l, faultRound+1))
		},
	}
}

// lockingStore watches the lock attempts of the round in which the servers change.
type lockingStore struct {
	cache.Store
	before   func(ctx context.Context) error // the attempt
	answered func(ctx context.Context)
}

func (s *lockingStore) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	if herd.WorkerFrom(ctx).Round != faultRound {
		return s.Store.Lock(ctx, key, token, ttl)
	}
	if err := s.before(ctx); err != nil {
		return "", err
	}
	holder, err := s.Store.Lock(ctx, key, token, ttl)
	s.answered(ctx)
	return holder, err
}

// allAnswered knows when each worker has an answer to its lock attempt: one has won, and the others wait.
type allAnswered struct {
	mu      sync.Mutex
	missing int
	workers map[int]bool
	done    chan struct{}
}

func newAllAnswered(workers int) *allAnswered {
	return &allAnswered{missing: workers, workers: map[int]bool{}, done: make(chan struct{})}
}

func (a *allAnswered) add(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	number := herd.WorkerFrom(ctx).Number
	if a.workers[number] {
		return
	}
	a.workers[number] = true
	if a.missing--; a.missing == 0 {
		close(a.done)
	}
}

func (a *allAnswered) wait(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
