package cache_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
)

func coalesced(s cache.Store, l cache.Loader) *cache.Coalesced {
	return &cache.Coalesced{Aside: aside(s, l), Limit: patience}
}

// workProbe keeps the work that it is told of, and counts the waits for it.
type workProbe struct {
	cache.NoProbe
	mu    sync.Mutex
	works []cache.Result
	joins int
}

func (p *workProbe) Flight(ctx context.Context, _ string) (context.Context, func(*cache.Result, error)) {
	return ctx, func(r *cache.Result, _ error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.works = append(p.works, *r)
	}
}

func (p *workProbe) Join(ctx, _ context.Context) (context.Context, func(*cache.Result, error)) {
	return ctx, func(*cache.Result, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joins++
	}
}

func TestTenThousandCallersShareOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe, loader := &workProbe{}, &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		s := coalesced(cachetest.NewStore(), loader)
		s.Probe = probe
		answers, sum := stampede(t.Context(), s, 10_000)

		equal(t, "backend calls", loader.Calls(), 1)
		equal(t, "filled", outcomes(answers)[cache.Filled], 1)
		equal(t, "waited", outcomes(answers)[cache.Waited], 9_999)
		equal(t, "value", answers[9_999].Value, "9.99")
		equal(t, "counts of the callers", sum, cache.Counts{})
		equal(t, "works", len(probe.works), 1)
		equal(t, "waits", probe.joins, 9_999)
		equal(t, "counts of the flight", probe.works[0].Counts, cache.Counts{Misses: 1, BackendCalls: 1, SetsAbsent: 1})
		equal(t, "sent by the flight", probe.works[0].Sent, cache.Sent{Get: 1, Set: 1})
	})
}

// slowGet answers a GET after a time.
type slowGet struct{ cache.Store }

func (s slowGet) Get(ctx context.Context, key string) (string, bool, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Get(ctx, key)
}

func TestCallersOfAFlightThatHitHaveAHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe, store := &workProbe{}, cachetest.NewStore()
		if _, _, err := store.Set(t.Context(), key, "9.99", ttl); err != nil {
			t.Fatal(err)
		}
		s := coalesced(slowGet{store}, nil)
		s.Probe = probe
		answers, _ := stampede(t.Context(), s, 100)
		equal(t, "hits", outcomes(answers)[cache.Hit], 100)
		equal(t, "waits", probe.joins, 0)
		equal(t, "counts of the flight", probe.works[0].Counts, cache.Counts{Hits: 1})
		equal(t, "works", len(probe.works), 1)
	})
}

func TestTheFlightOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type valueKey struct{}
		loader := &cachetest.Loader{Answer: func(ctx context.Context, _ int) (string, error) {
			time.Sleep(fillTime)
			value, _ := ctx.Value(valueKey{}).(string)
			return value, ctx.Err()
		}}
		s := coalesced(cachetest.NewStore(), loader)
		first, leave := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "of the first caller"))
		gone := errors.New("gone")
		var wg sync.WaitGroup
		wg.Go(func() {
			started := time.Now()
			result, err := s.Get(first, key)
			if !errors.Is(err, gone) || result.Outcome != cache.Failed || time.Since(started) != fillTime/2 {
				t.Errorf("the first caller got %+v, %v after %v", result, err, time.Since(started))
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if result, err := s.Get(t.Context(), key); result.Value != "of the first caller" || err != nil {
				t.Errorf("the second caller got %+v, %v", result, err)
			}
		})
		time.Sleep(fillTime / 2)
		leave(gone)
		wg.Wait()
		equal(t, "backend calls", loader.Calls(), 1)
	})
}

func TestEachCallerLeavesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := &cachetest.Loader{Answer: cachetest.Takes(fillTime, "9.99")}
		s := coalesced(cachetest.NewStore(), loader)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				limit := time.Duration(i+1) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				started := time.Now()
				if _, err := s.Get(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the end of the context", err)
				}
				equal(t, "time", time.Since(started), limit)
			})
		}
		wg.Wait()
		// The flight goes on, and is there for the next.
		result, err := s.Get(t.Context(), key)
		if result.Outcome != cache.Waited || err != nil {
			t.Errorf("the next got %+v, %v", result, err)
		}
		equal(t, "backend calls", loader.Calls(), 1)
	})
}

func TestAFlightEndsWithItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := &cachetest.Loader{Answer: func(ctx context.Context, _ int) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}}
		started := time.Now()
		_, err := coalesced(cachetest.NewStore(), loader).Get(t.Context(), key)
		if !errors.Is(err, cache.ErrFlightTimeout) {
			t.Errorf("got %v, want the flight's limit", err)
		}
		equal(t, "time", time.Since(started), patience)
	})
}

func TestAPanicReachesAllCallersAndTheNextCallWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			time.Sleep(fillTime)
			if n == 1 {
				panic("a nil map")
			}
			return "9.99", nil
		}}
		s := coalesced(cachetest.NewStore(), loader)
		answers, _ := stampede(t.Context(), s, 50)
		for _, a := range answers {
			if a.err == nil || !strings.Contains(a.err.Error(), "panic: a nil map") || !strings.Contains(a.err.Error(), "flight_test.go") {
				t.Fatalf("got %v, want the panic with its stack", a.err)
			}
		}
		equal(t, "backend calls", loader.Calls(), 1)
		result, err := s.Get(t.Context(), key)
		if result.Value != "9.99" || err != nil {
			t.Errorf("the next call got %+v, %v", result, err)
		}
	})
}

func TestAnErrorReachesAllCallersAndIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		loader := &cachetest.Loader{Answer: func(_ context.Context, n int) (string, error) {
			time.Sleep(fillTime)
			if n == 1 {
				return "", down
			}
			return "9.99", nil
		}}
		s := coalesced(cachetest.NewStore(), loader)
		answers, _ := stampede(t.Context(), s, 50)
		for _, a := range answers {
			if !errors.Is(a.err, down) || a.Outcome != cache.Failed {
				t.Fatalf("got %+v, want the backend's error", a)
			}
		}
		equal(t, "backend calls", loader.Calls(), 1)
		_, err := s.Get(t.Context(), key)
		equal(t, "error of the next", err, nil)
	})
}

// A goroutine that is ended from within, as by t.FailNow, answers all the same.
func TestAFlightThatIsEndedFromWithinAnswers(t *testing.T) {
	loader := &cachetest.Loader{Answer: func(context.Context, int) (string, error) {
		runtime.Goexit()
		return "", nil
	}}
	if _, err := coalesced(cachetest.NewStore(), loader).Get(t.Context(), key); err == nil {
		t.Error("there is an answer")
	}
}

func TestFlightsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine is left
		loader := &cachetest.Loader{Answer: cachetest.Takes(0, "9.99")}
		s := coalesced(cachetest.NewStore(), loader)
		for i := range 100_000 {
			if _, err := s.Get(t.Context(), string(rune(i))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		equal(t, "flights", s.Flights.Len(), 0)
	})
}
