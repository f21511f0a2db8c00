package cache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

// woken is one instance, which stands for a process: it has flights of its own.
func woken(s cache.Store, ear cache.Listener, l cache.Loader, p cache.Probe) *cache.Woken {
	w := &cache.Woken{Aside: aside(s, l), Listener: ear, Lock: cache.FillLock{TTL: lockTTL, NewToken: cache.RandomToken}, WaitTimeout: patience}
	w.Probe = p
	return w
}

// processes sends callers to each of n instances at the same instant.
func processes(t *testing.T, n, callers int, one func() *cache.Woken) []answer {
	t.Helper()
	var mu sync.Mutex
	var all []answer
	var wg sync.WaitGroup
	for range n {
		s := one()
		wg.Go(func() {
			answers, _ := stampede(t.Context(), s, callers)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, answers...)
		})
	}
	wg.Wait()
	return all
}

// sum is of all works, of which some end after their answer.
func (p *workProbe) sum() (c cache.Counts) {
	synctest.Wait()
	for _, w := range p.works {
		c.Add(w.Counts)
	}
	return c
}

func TestWokenFlightsOfAllProcessesMakeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &workProbe{}
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		started := time.Now()
		answers := processes(t, 8, 62, func() *cache.Woken { return woken(store, store, loader, probe) })
		equal(t, "time", time.Since(started), fillTime) // the ring comes with the fill
		equal(t, "backend calls", loader.Calls(), 1)
		equal(t, "values", outcomes(answers)[cache.Failed], 0)
		sum := probe.sum()
		equal(t, "works", len(probe.works), 8)
		equal(t, "woken by a message", sum.WokenByMessage, 7)
		equal(t, "woken by a look", sum.WokenByLook, 0)
		equal(t, "acquired", sum.Acquired, 1)
		equal(t, "released", sum.Released, 1)
		equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
		equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
	})
}

// slowRing is a store whose PUBLISH takes until it is let go.
type slowRing struct {
	cache.Store
	rung chan struct{}
}

func (s slowRing) Publish(ctx context.Context, channel string) error {
	<-s.rung
	return s.Store.Publish(ctx, channel)
}

func TestTheCallersInTheWinnersProcessDoNotWaitForTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe, ring := cachetest.NewStore(), &workProbe{}, make(chan struct{})
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		s := woken(slowRing{store, ring}, store, loader, probe)
		started := time.Now()
		answers, _ := stampede(t.Context(), s, 50)
		equal(t, "time", time.Since(started), fillTime)
		equal(t, "filled", outcomes(answers)[cache.Filled], 1)
		equal(t, "waited", outcomes(answers)[cache.Waited], 49)
		equal(t, "lock at the answer", store.Peek(cache.LockKey(key)), "")
		equal(t, "flights at the answer", s.Flights.Len(), 0)

		next, err := s.Get(t.Context(), key) // a flight of its own
		equal(t, "outcome of the next", next.Outcome, cache.Hit)
		equal(t, "its error", err, nil)
		synctest.Wait()
		equal(t, "works before the ring", len(probe.works), 1)
		close(ring)
		synctest.Wait()
		equal(t, "works", len(probe.works), 2)
		equal(t, "rings", probe.works[1].Sent.Publish, 1)
		equal(t, "backend calls", loader.Calls(), 1)
	})
}

// mute is a store whose PUBLISH is lost, or refused.
type mute struct {
	cache.Store
	err error
}

func (m mute) Publish(context.Context, string) error { return m.err }

func TestWithoutRingsFlightsLookByThemselves(t *testing.T) {
	for name, err := range map[string]error{"lost": nil, "refused": errRefused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, probe := cachetest.NewStore(), &workProbe{}
				loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
				started := time.Now()
				answers := processes(t, 8, 10, func() *cache.Woken { return woken(mute{store, err}, store, loader, probe) })
				if took := time.Since(started); took < 400*time.Millisecond || took > 600*time.Millisecond {
					t.Errorf("took %v, want a look: 400 to 600 ms", took)
				}
				sum := probe.sum()
				equal(t, "backend calls", loader.Calls(), 1)
				equal(t, "errors", outcomes(answers)[cache.Failed], 0)
				equal(t, "woken by a message", sum.WokenByMessage, 0)
				equal(t, "woken by a look", sum.WokenByLook, 7)
				failed := 0
				if err != nil {
					failed = 1
				}
				equal(t, "failed PUBLISHes", sum.RingsFailed, failed)
				equal(t, "tolerated", sum.Tolerated, failed)
			})
		})
	}
}

// lateEar holds back the subscription until it is opened.
type lateEar struct {
	cache.Listener
	open chan struct{}
}

func (e lateEar) Listen(channel string) (<-chan cache.Wake, func()) {
	<-e.open
	return e.Listener.Listen(channel)
}

func TestAFlightThatIsPausedBeforeItsSubscriptionDoesNotMissTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &workProbe{}
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		ear := lateEar{store, make(chan struct{})}
		started := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { stampede(t.Context(), woken(store, store, loader, probe), 10) })
		synctest.Wait() // it has the lock
		wg.Go(func() {
			answers, _ := stampede(t.Context(), woken(store, ear, loader, probe), 10)
			equal(t, "errors", outcomes(answers)[cache.Failed], 0)
		})
		time.Sleep(fillTime + time.Millisecond) // stored, released, and rung
		close(ear.open)
		wg.Wait()
		equal(t, "time", time.Since(started), fillTime+time.Millisecond) // and no look later
		equal(t, "backend calls", loader.Calls(), 1)
		equal(t, "woken", probe.sum().WokenByMessage+probe.sum().WokenByLook, 0)
	})
}

func TestAfterAFailedFillTheNextFlightTakesOverAtTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &workProbe{}
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			time.Sleep(fillTime)
			if n == 1 {
				return "", errors.New("down")
			}
			return "9.99", nil
		}}
		started := time.Now()
		answers := processes(t, 4, 10, func() *cache.Woken { return woken(store, store, loader, probe) })
		equal(t, "time", time.Since(started), 2*fillTime)
		equal(t, "backend calls", loader.Calls(), 2)
		equal(t, "in flight at peak", loader.Peak(), 1)
		equal(t, "errors", outcomes(answers)[cache.Failed], 10) // the callers of the flight that failed
		equal(t, "woken by a look", probe.sum().WokenByLook, 0)
	})
}

func TestADeadWinnerOfWokenCostsOneTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &workProbe{}
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		if _, err := store.Lock(t.Context(), cache.LockKey(key), "dead", lockTTL); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		answers := processes(t, 4, 10, func() *cache.Woken { return woken(store, store, loader, probe) })
		equal(t, "backend calls", loader.Calls(), 1)
		equal(t, "errors", outcomes(answers)[cache.Failed], 0)
		if took, limit := time.Since(started), lockTTL+600*time.Millisecond+fillTime; took < lockTTL || took > limit {
			t.Errorf("took %v, want %v to %v", took, lockTTL, limit)
		}
	})
}

// A late winner overwrites nothing newer, and its lost lock is counted.
func TestALateWinnerOfWokenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, probe := cachetest.NewStore(), &workProbe{}
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			if n == 1 {
				time.Sleep(2 * time.Second)
				return "old", nil
			}
			time.Sleep(fillTime)
			return "new", nil
		}}
		processes(t, 2, 10, func() *cache.Woken {
			w := woken(store, store, loader, probe)
			w.Lock.TTL = time.Second
			return w
		})
		sum := probe.sum()
		equal(t, "backend calls", sum.BackendCalls, 2)
		equal(t, "value", store.Peek(key), "new")
		equal(t, "late", sum.SetsLate, 1)
		equal(t, "lost", sum.Lost, 1)
		equal(t, "SETs that found the key absent", sum.SetsAbsent, 1)
	})
}

func TestWokenStoreErrors(t *testing.T) {
	refill := cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, BackendCalls: 1}
	unanswered, refused := refill, refill
	unanswered.SetsUnanswered, refused.SetsRefused = 1, 1
	for name, test := range map[string]struct {
		store flaky
		want  cache.Counts
	}{
		"a lost reply to store and release": {flaky{both: 1}, unanswered},
		"a refused store and release":       {flaky{both: 1, refuses: true}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, probe := cachetest.NewStore(), &workProbe{}
				test.store.Store = store
				result, err := woken(&test.store, store, &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}, probe).Get(t.Context(), key)
				if result.Value != "9.99" || err != nil {
					t.Errorf("got %+v, %v", result, err)
				}
				equal(t, "counts", probe.sum(), test.want)
				equal(t, "lock afterwards", store.Peek(cache.LockKey(key)), "")
			})
		})
	}
}
