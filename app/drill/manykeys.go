package drill

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// The rounds of the drill.
const (
	written  = 1 + iota // all keys, at the same instant
	together            // they expire together; what is written now has the jitter
	spread              // they expire one by one
)

// hotness is how soon a hot key is asked for again.
const hotness = 5 * time.Millisecond

func manyKeys() Drill {
	return Drill{
		Name:  "many-keys",
		Short: "200 hot keys with one TTL expire together; with --ttl-jitter 20% they do not",
		Long: `Each worker has a key of its own, and asks for it as soon as it expires, as the next reader of a hot key does.
Round 1 writes all keys at the same instant, with one TTL. Round 2: they expire together; each key has its fill lock, and
all the same the backend gets all calls at once. They are written again with --ttl-jitter. Round 3: they expire spread.
The latencies of rounds 2 and 3 hold the wait for the expiry.`,
		Settings: map[string]string{"workers": "200", "rounds": "3", "ttl": "5s", "ttl-jitter": "20%", "backend-latency": "150ms",
			"backend-jitter": "0", "backend-capacity": "0"},
		Start: startManyKeys,
	}
}

// expirations knows when keys expire.
type expirations struct {
	cache.Store
	mu sync.Mutex
	at map[string]time.Time
}

func (e *expirations) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := e.Store.Set(ctx, key, value, ttl)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[key] = time.Now().Add(ttl)
	return replaced, found, err
}

func (e *expirations) await(ctx context.Context, key string) error {
	e.mu.Lock()
	at := e.at[key]
	e.mu.Unlock()
	return cache.Sleep(ctx, time.Until(at))
}

func startManyKeys(s Scene) Faults {
	fresh := strings.ToLower(rand.Text()[:8]) // the keys of an earlier run may still be there
	watch := newCalls()
	expiring := &expirations{at: map[string]time.Time{}}
	var expired perRound
	return Faults{
		Store: func(next cache.Store) cache.Store {
			expiring.Store = next
			return expiring
		},
		Loader: watch.around,
		Strategy: func(make func(float64) cache.Strategy, jitter float64) cache.Strategy {
			strategies := map[int]cache.Strategy{written: make(0), together: make(jitter), spread: make(jitter)}
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				worker := herd.WorkerFrom(ctx)
				key = fmt.Sprintf("%s:%s:%d", key, fresh, worker.Number)
				if err := expiring.await(ctx, key); err != nil {
					return &cache.Result{Outcome: cache.Failed}, err
				}
				if worker.Round == together && expired.add(ctx) == 1 {
					s.Report(ctx, fmt.Sprintf("%d keys expire at the same instant", s.Workers))
				}
				return untilExpired(ctx, strategies[worker.Round], key)
			})
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			peaks, rates := [2]int{watch.peak(together), watch.peak(spread)}, [2]int{watch.perSecond(together), watch.perSecond(spread)}
			text := fmt.Sprintf("%d keys with one TTL: %d calls in flight at peak, %d a second; with %.0f%% jitter: %d and %d, which is %.1f and %.1f times less",
				s.Workers, peaks[0], rates[0], s.TTLJitter*100, peaks[1], rates[1], ratio(peaks), ratio(rates))
			return verdict(l, text, tookPlace(l, spread),
				expect(l.BackendCalls == l.Expiries && l.Expiries == spread*s.Workers && l.Outcomes[cache.Failed] == 0 && l.Lost == 0,
					"not one call for each expiry of each key"),
				expect(ratio(peaks) >= 2 && ratio(rates) >= 2, "the jitter did not halve the peaks"))
		},
	}
}

// untilExpired asks until the key has expired by Redis's clock, too. What was counted and sent is that of all its requests.
func untilExpired(ctx context.Context, strategy cache.Strategy, key string) (*cache.Result, error) {
	var counts cache.Counts
	var sent cache.Sent
	for {
		result, err := strategy.Get(ctx, key)
		counts.Add(result.Counts)
		sent.Add(result.Sent)
		result.Counts, result.Sent = counts, sent
		if err != nil || result.Outcome != cache.Hit {
			return result, err
		}
		if err := cache.Sleep(ctx, hotness); err != nil {
			result.Outcome = cache.Failed
			return result, err
		}
	}
}

func ratio(n [2]int) float64 { return float64(n[0]) / float64(max(1, n[1])) }
