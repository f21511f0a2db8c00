package herd_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
)

// coalesced is a strategy whose requests share flights, in a run that hears of them.
func coalesced(load func(context.Context, int) (string, error)) (*cache.Coalesced, *cachetest.Store) {
	store := cachetest.NewStore()
	return &cache.Coalesced{Aside: cache.Aside{Store: store, Backend: &cachetest.Loader{Answer: load}, Probe: herd.Probe{}, TTL: 3 * time.Second},
		Limit: time.Minute}, store
}

func TestTheWorkOfAFlightIsInTheLedgerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := coalesced(func(ctx context.Context, n int) (string, error) {
			herd.CountCall(ctx, n == 2, n == 3)
			time.Sleep(250 * time.Millisecond)
			return "19.99", nil
		})
		var works, responses []herd.Response
		h := herd.Herd{Strategy: s, Key: "key", Workers: 50, Rounds: 3, Keeper: &keeper{wait: 4 * time.Second}, Observer: herd.NoObserver{},
			Results: herd.Results{TTL: 3 * time.Second, Keep: func(r herd.Response) {
				if r.Work != "" {
					works = append(works, r)
				} else {
					responses = append(responses, r)
				}
			}}}
		l, err := h.Run(t.Context())
		want := herd.Sum{Requests: 150, Works: 3, Counts: cache.Counts{Misses: 3, BackendCalls: 3, SetsAbsent: 3}, Expiries: 3, Redundant: 1, Repeated: 1,
			Sent: cache.Sent{Get: 3, Set: 3}, Missed: 3, Outcomes: map[cache.Outcome]int{cache.Filled: 3, cache.Waited: 147}}
		got := l.Sum
		got.Waiters = 0 // in this bubble those wait for no time at all that come as the answer does
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, %v, want\n%+v", got, err, want)
		}
		if len(l.ByRound) != 3 || l.ByRound[1].BackendCalls != 1 || l.ByRound[1].Requests != 50 {
			t.Errorf("rounds: %+v", l.ByRound)
		}
		if l.Latency.P50 != 250*time.Millisecond || l.WakeLag.Max != 0 {
			t.Errorf("latency %+v, wake lag %+v", l.Latency, l.WakeLag)
		}
		if len(works) != 3 || len(responses) != 150 || works[2].Work != herd.Flight || works[2].Worker.Round != 3 || works[2].Elapsed != 250*time.Millisecond {
			t.Errorf("kept %d responses and %+v", len(responses), works)
		}
	})
}

// joins counts the callers that begin to wait for a flight, and tells when all have.
type joins struct {
	herd.Probe
	left atomic.Int32
	all  chan struct{}
}

func (j *joins) Join(ctx, miss context.Context) (context.Context, func(*cache.Result, error)) {
	if j.left.Add(-1) == 0 {
		close(j.all)
	}
	return j.Probe.Join(ctx, miss)
}

// Growing them would take longer than anything else between the release and the first call, and is most of what a waiter needs.
func TestTheStacksOfAHerdThatWaitsDoNotGrow(t *testing.T) {
	if raced() {
		t.Skip("the race detector makes frames larger")
	}
	const workers = 1000
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would free the stacks of those who have left
	answer := make(chan struct{})
	s, _ := coalesced(func(context.Context, int) (string, error) {
		<-answer
		return "19.99", nil
	})
	probe := &joins{all: make(chan struct{})}
	probe.left.Store(workers - 1)
	s.Probe = probe
	h := herd.Herd{Strategy: s, Key: "key", Workers: workers, Rounds: 1, Observer: herd.NoObserver{}}
	for range 2 { // how large a new stack is depends on those that the garbage collector has seen
		small, err := h.Gather(t.Context(), herd.Round{Number: 1})
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		small.Dismiss()
	}
	gathered, err := h.Gather(t.Context(), herd.Round{Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	before, back := stacks(t), make(chan error)
	go func() {
		_, err := gathered.Release(t.Context(), func(herd.Response) {})
		back <- err
	}()
	<-probe.all
	grown := stacks(t) - before
	close(answer)
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	if grown > workers*512 { // a stack of 2 kB that grows takes another 4 kB
		t.Errorf("the stacks of %d workers grew by %d bytes", workers, grown)
	}
}

func raced() bool {
	about, _ := debug.ReadBuildInfo()
	return about != nil && slices.Contains(about.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// stacks is how much memory they use, in bytes.
func stacks(t *testing.T) int {
	t.Helper()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// The round ends after the flight, although all who asked have left.
func TestARoundWaitsForTheWorkThatOutlivesItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := coalesced(cachetest.Takes(time.Second, "19.99"))
		leaving := &scripted{get: func(ctx context.Context, _ herd.Worker) (*cache.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return s.Get(ctx, "key")
		}}
		h := herd.Herd{Strategy: leaving, Key: "key", Workers: 10, Rounds: 1, Keeper: &keeper{}, Observer: herd.NoObserver{}}
		l, err := h.Run(t.Context())
		if err != nil || l.BackendCalls != 1 || l.BackendErrors != 0 || l.Expiries != 1 || l.Outcomes[cache.Failed] != 10 || l.Works != 1 {
			t.Errorf("got %+v, %v", l.Sum, err)
		}
		if !errors.Is(l.OtherError, context.DeadlineExceeded) || store.Peek("key") != "19.99" || l.Latency.Max != 100*time.Millisecond {
			t.Errorf("error %v, value %q, latency %+v", l.OtherError, store.Peek("key"), l.Latency)
		}
	})
}

func TestAStreamOfFlightsHasOneRoundAndOneCallForEachExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		strategy, _ := coalesced(cachetest.Takes(250*time.Millisecond, "19.99"))
		s := stream(strategy, r)
		phase := s.Flow(t.Context(), 31*time.Second)
		l := s.Ledger()
		r.check(t, l)
		if l.Expiries != 10 || l.BackendCalls != 10 || l.Rounds != 11 || phase.Counts != l.Counts || phase.Requests != l.Requests || l.Works < 1000 {
			t.Errorf("phase %+v, ledger %+v", phase, l)
		}
	})
}

// slowLock takes the lock after a time.
type slowLock struct{ cache.Store }

func (s slowLock) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Store.Lock(ctx, key, token, ttl)
}

func TestWhoseKeyExpiresBeforeItIsRefreshedHasNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		if _, _, err := store.Set(t.Context(), "key", "9.99", 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		s := &cache.Early{Fixed: cache.Fixed{
			Aside: cache.Aside{Store: slowLock{store}, Backend: &cachetest.Loader{Answer: cachetest.Takes(0, "19.99")}, Probe: herd.Probe{}, TTL: time.Minute},
			Lock:  cache.FillLock{TTL: time.Minute, NewToken: cache.RandomToken}, WaitTimeout: 2 * time.Minute},
			Beta: 1, Locked: true, Delta: func(string) (time.Duration, bool) { return time.Second, true }, Random: func() float64 { return 0.999 }}
		h := herd.Herd{Strategy: s, Key: "key", Workers: 1, Rounds: 1, Keeper: &keeper{}, Observer: herd.NoObserver{}}
		l, err := h.Run(t.Context())
		if err != nil || l.Missed != 0 || l.Hits != 1 || l.Misses != 1 || l.Expired != 1 || l.BackendCalls != 1 || l.SetsAbsent != 1 {
			t.Errorf("%d missed, %+v, %v", l.Missed, l.Counts, err)
		}
	})
}
