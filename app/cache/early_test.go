package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

// generations answers "answer 1", "answer 2" and so on, each after the time.
func generations(d time.Duration) *cachetest.Loader {
	return &cachetest.Loader{Answer: func(ctx context.Context, n int) (string, error) {
		return cachetest.Takes(d, fmt.Sprint("answer ", n))(ctx, n)
	}}
}

// deltaOf knows the values of generations.
func deltaOf(d time.Duration) func(string) (time.Duration, bool) {
	return func(value string) (time.Duration, bool) { return d, strings.HasPrefix(value, "answer ") }
}

// seeded is a source that many goroutines may use.
func seeded(seed uint64) func() float64 {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 0))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

func early(s cache.Store, l cache.Loader) *cache.Early {
	return &cache.Early{Fixed: *fixed(s, l), Beta: 1, Locked: true, Delta: deltaOf(fillTime), Random: seeded(11)}
}

// always is a source that decides for a refresh.
func always() float64 { return 1 - 1e-300 }

func TestXFetchRefreshesTheLikelierTheNearerTheExpiry(t *testing.T) {
	for _, test := range []struct {
		left   time.Duration
		beta   float64
		chance float64
	}{
		{0, 1, 1}, {fillTime, 1, math.Exp(-1)}, {2 * fillTime, 1, math.Exp(-2)}, {2 * fillTime, 2, math.Exp(-1)}, {fillTime / 2, 0.5, math.Exp(-1)},
	} {
		random, yes := seeded(1), 0
		const n = 100_000
		for range n {
			if cache.XFetch(test.left, fillTime, test.beta, random()) {
				yes++
			}
		}
		if got := float64(yes) / n; math.Abs(got-test.chance) > 0.005 { // three standard deviations
			t.Errorf("%v left, beta %v: %.4f of the requests refresh, want %.4f", test.left, test.beta, got, test.chance)
		}
	}
}

// In the time that the first refresh takes, the hazard of another grows by e^(1/beta), and there is no lock: so many calls does
// a refresh cost on average, whatever the rate, the TTL and the length of a fill.
func TestPlainXFetchMakesAsManyCallsAsTheTheorySays(t *testing.T) {
	const delta = 50 * time.Millisecond
	for _, test := range []struct {
		beta      float64
		rate      float64 // requests in a delta
		refreshes int
		within    float64 // three standard deviations of the mean
	}{
		{1, 20, 10_000, 0.08}, {2, 20, 2_000, 0.07}, {0.5, 120, 800, 0.73},
	} {
		t.Run(fmt.Sprint("beta ", test.beta), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loader := generations(delta)
				e := early(cachetest.NewStore(), loader)
				e.TTL = max(10*delta, time.Duration(12*test.beta*float64(delta)))
				e.Beta, e.Locked, e.Delta = test.beta, false, deltaOf(delta)
				var redundant atomic.Int64
				e.Backend = begins{loader, func(inFlight int) {
					if inFlight > 0 {
						redundant.Add(1)
					}
				}}
				var requests sync.WaitGroup
				arrivals := rand.New(rand.NewPCG(7, 0))
				for loader.Calls()-int(redundant.Load()) < test.refreshes {
					// Nobody asks while a refresh has a chance of less than e^-11.
					if _, left, found, _ := e.Store.GetTTL(t.Context(), key); found {
						time.Sleep(left - time.Duration(11*test.beta*float64(delta)))
					}
					time.Sleep(time.Duration(arrivals.ExpFloat64() / test.rate * float64(delta)))
					requests.Go(func() {
						if _, err := e.Get(t.Context(), key); err != nil {
							t.Error(err)
						}
					})
				}
				requests.Wait()
				refreshes := loader.Calls() - int(redundant.Load())
				got, want := float64(loader.Calls())/float64(refreshes), math.Exp(1/test.beta)
				t.Logf("beta %v: %d calls in %d refreshes = %.3f, theory %.3f", test.beta, loader.Calls(), refreshes, got, want)
				if math.Abs(got-want) > test.within {
					t.Errorf("%.3f calls per refresh, want %.3f +- %.3f", got, want, test.within)
				}
			})
		})
	}
}

// begins is told how many calls are in flight when one begins. Calls must begin one after the other.
type begins struct {
	*cachetest.Loader
	tell func(inFlight int)
}

func (b begins) Load(ctx context.Context, key string) (string, error) {
	b.tell(b.InFlight())
	return b.Loader.Load(ctx, key)
}

// traffic asks at the rate for a time, and returns the answers in the order of the requests.
func traffic(ctx context.Context, s cache.Strategy, perSecond int, length time.Duration) []answer {
	answers := make([]answer, int(length.Seconds()*float64(perSecond)))
	var requests sync.WaitGroup
	for i := range answers {
		requests.Go(func() {
			result, err := s.Get(ctx, key)
			answers[i] = answer{*result, err}
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	requests.Wait()
	return answers
}

func TestEarlyUnderTheLockIsNeverRedundantNorRepeatedAndNobodyMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := generations(fillTime)
		e := early(cachetest.NewStore(), loader)
		answers := traffic(t.Context(), e, 400, 60*time.Second)

		var sum cache.Counts
		missed := 0
		for i, a := range answers {
			sum.Add(a.Counts)
			if a.err != nil {
				t.Fatalf("request %d: %v", i, a.err)
			}
			if a.Misses > 0 && i > 100 { // the first fill took as long as these
				missed++
			}
		}
		equal(t, "misses after the first fill", missed, 0)
		equal(t, "in flight at peak", loader.Peak(), 1)
		equal(t, "acquired", sum.Acquired, sum.Rechecked+loader.Calls())
		equal(t, "released", sum.Released, sum.Acquired)
		// 60 s / TTL x 1.5, by the theory.
		if n := loader.Calls(); n < 25 || n > 35 {
			t.Errorf("%d calls in 20 TTLs, want about 30", n)
		}
	})
}

func TestWhoDoesNotGetTheLockServesWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := generations(fillTime)
		e := early(cachetest.NewStore(), loader)
		if _, err := e.Get(t.Context(), key); err != nil { // the cold fill
			t.Fatal(err)
		}
		e.Random = always
		started := time.Now()
		answers, sum := stampede(t.Context(), e, 50)
		equal(t, "backend calls", sum.BackendCalls, 1)
		equal(t, "filled", outcomes(answers)[cache.Filled], 1)
		equal(t, "hit", outcomes(answers)[cache.Hit], 49)
		equal(t, "held", sum.Held, 49)
		equal(t, "time", time.Since(started), fillTime)
		old := 0
		for _, a := range answers {
			if a.Value == "answer 1" {
				old++
			}
			equal(t, "waited", a.Waited, 0)
		}
		equal(t, "old values", old, 49)
	})
}

// Between GET and SET NX PX another may have refreshed: held there, k requests find the newer value under the lock. Without the
// second look each of them would call.
func TestARefreshLooksAgainUnderTheLock(t *testing.T) {
	for _, k := range []int{1, 7} {
		for _, blind := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				service := backend.New(backend.Config{Latency: fillTime, TTL: ttl})
				gate := &refreshGate{Store: cachetest.NewStore(), k: k, open: make(chan struct{}), blind: blind}
				e := early(gate, service)
				e.Delta = func(string) (time.Duration, bool) { return fillTime, true }
				first, err := e.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(ttl / 2)
				gate.closed, gate.old, e.Random = true, first.Value, always
				go func() { // when the first refresh is stored, those that were held go on
					time.Sleep(fillTime + time.Millisecond)
					close(gate.open)
				}()
				answers, sum := stampede(t.Context(), e, k+1)
				stats := service.Stats()
				equal(t, "redundant", stats.Redundant, 0)
				if blind {
					equal(t, "backend calls", stats.Calls, 2+k)
					equal(t, "repeated", stats.Repeated, k)
					return
				}
				equal(t, "backend calls", stats.Calls, 2)
				equal(t, "repeated", stats.Repeated, 0)
				equal(t, "re-checks that found a newer value", sum.Rechecked, k)
				for _, a := range answers {
					equal(t, "value", a.Value, answers[0].Value)
				}
			})
		}
	}
}

// refreshGate holds k requests between their GET and their lock attempt until it opens; then they go one after the other. If it
// is blind, the second look finds what the first found.
type refreshGate struct {
	*cachetest.Store
	k      int
	open   chan struct{}
	closed bool
	blind  bool
	old    string

	mu   sync.Mutex
	held int
}

func (g *refreshGate) Lock(ctx context.Context, lock, token string, ttl time.Duration) (string, error) {
	g.mu.Lock()
	n := 0
	if g.closed && g.held < g.k {
		g.held++
		n = g.held
	}
	g.mu.Unlock()
	if n > 0 {
		<-g.open
		time.Sleep(time.Duration(n) * (fillTime + time.Millisecond))
	}
	return g.Store.Lock(ctx, lock, token, ttl)
}

func (g *refreshGate) Get(ctx context.Context, key string) (string, bool, error) {
	if g.blind && cache.ReadOf(ctx) == cache.Renewal {
		return g.old, true, nil
	}
	return g.Store.Get(ctx, key)
}

func TestAFailedRefreshServesTheOldValueAndGivesTheLockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, down := cachetest.NewStore(), errors.New("down")
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			if n > 1 {
				return "", down
			}
			return "answer 1", nil
		}}
		e := early(store, loader)
		if _, err := e.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		e.Random = always
		result, err := e.Get(t.Context(), key)
		equal(t, "error", err, nil)
		equal(t, "value", result.Value, "answer 1")
		equal(t, "counts", result.Counts, cache.Counts{Hits: 2, Acquired: 1, Released: 1, BackendCalls: 1, BackendErrors: 1})
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

func TestAStrangersValueIsServedAndNeverRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, s := range map[string]func(cache.Store) cache.Strategy{
			"early": func(s cache.Store) cache.Strategy {
				e := early(s, nil)
				e.Random = always
				return e
			},
			"stale": func(s cache.Store) cache.Strategy { return stale(s, nil) },
		} {
			store := cachetest.NewStore()
			if _, _, err := store.Set(t.Context(), key, "a stranger's", time.Second); err != nil {
				t.Fatal(err)
			}
			result, err := s(store).Get(t.Context(), key)
			if err != nil || result.Value != "a stranger's" || result.Counts != (cache.Counts{Hits: 1}) {
				t.Errorf("%s: %+v, %v", name, result, err)
			}
		}
	})
}

func TestAKeyThatNeverExpiresIsAnErrorThatNamesIt(t *testing.T) {
	for name, s := range map[string]cache.Strategy{
		"early": early(forever{cachetest.NewStore()}, nil), "stale": stale(forever{cachetest.NewStore()}, nil),
	} {
		result, err := s.Get(t.Context(), key)
		if err == nil || !strings.Contains(err.Error(), `"product:42:price" never expires`) {
			t.Errorf("%s: got %v", name, err)
		}
		equal(t, name, result.Counts, cache.Counts{Hits: 1})
	}
}

// forever has a value without an expiry.
type forever struct{ *cachetest.Store }

func (forever) GetTTL(context.Context, string) (string, time.Duration, bool, error) {
	return "answer 1", -1, true, nil
}
