package backend_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/price"
)

var _ cache.Loader = (*backend.Service)(nil)

// herd makes n calls at the same instant and returns their errors and how long it took.
func herd(t *testing.T, s *backend.Service, n int) ([]error, time.Duration) {
	started := time.Now()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, errs[i] = s.Load(t.Context(), "key") })
	}
	wg.Wait()
	return errs, time.Since(started)
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestAHerdQueuesForTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		queued := map[time.Duration]int{}
		inFlight := 0
		s := backend.New(backend.Config{Latency: 250 * time.Millisecond, Capacity: 10, OnCall: func(_ context.Context, c backend.Call) {
			mu.Lock()
			defer mu.Unlock()
			queued[c.Queued]++
			inFlight = max(inFlight, c.InFlight)
		}})
		_, took := herd(t, s, 50)
		equal(t, "time", took, 5*250*time.Millisecond)
		equal(t, "stats", s.Stats(), backend.Stats{Calls: 50, Peak: 50, Redundant: 49})
		equal(t, "in flight as told", inFlight, 50)
		for i := range 5 {
			equal(t, "calls that queued for "+(time.Duration(i)*250*time.Millisecond).String(), queued[time.Duration(i)*250*time.Millisecond], 10)
		}
	})
}

func TestWithoutALimitNobodyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backend.New(backend.Config{Latency: time.Second})
		_, took := herd(t, s, 50)
		equal(t, "time", took, time.Second)
	})
}

func TestJitterStaysWithinItsFractionAndFollowsTheSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := func(seed uint64) (all []time.Duration) {
			s := backend.New(backend.Config{Latency: time.Second, Jitter: 0.1, Seed: seed})
			for range 200 {
				_, took := herd(t, s, 1)
				if took < 900*time.Millisecond || took > 1100*time.Millisecond {
					t.Errorf("a call took %v, want 0.9 to 1.1 s", took)
				}
				all = append(all, took)
			}
			return all
		}
		a, b, c := times(1), times(1), times(2)
		if a[0] == a[1] || a[0] != b[0] || a[199] != b[199] || a[0] == c[0] {
			t.Errorf("seeds: %v %v, again %v, other %v", a[0], a[1], b[0], c[0])
		}
	})
}

func TestFailures(t *testing.T) {
	tests := []struct {
		text  string
		fails string // by call
	}{
		{"", "......"}, {"1", "x....."}, {"2-5", ".xxxx."}, {"all", "xxxxxx"}, {"100%", "xxxxxx"}, {"0%", "......"},
	}
	for _, test := range tests {
		failures, err := backend.ParseFailures(test.text)
		if err != nil {
			t.Fatal(err)
		}
		s := backend.New(backend.Config{Failures: failures})
		got := ""
		for range 6 {
			_, err := s.Load(t.Context(), "key")
			switch {
			case err == nil:
				got += "."
			case errors.Is(err, backend.ErrUnavailable):
				got += "x"
			default:
				t.Errorf("%q: %v", test.text, err)
			}
		}
		equal(t, test.text, got, test.fails)
		if test.text != "0%" && test.text != "100%" {
			equal(t, "text", failures.String(), test.text)
		}
	}
	for _, text := range []string{"0", "-1", "5-2", "1-", "x", "101%", "-1%", "NaN%", "%"} {
		if _, err := backend.ParseFailures(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	share, err := backend.ParseFailures("10%")
	if err != nil {
		t.Fatal(err)
	}
	s := backend.New(backend.Config{Failures: share, Seed: 1})
	failed := 0
	for range 1000 {
		if _, err := s.Load(t.Context(), "key"); err != nil {
			failed++
		}
	}
	if failed < 70 || failed > 130 { // 10 sigma would be 95: the seed makes it the same each time
		t.Errorf("10%% of 1000 calls: %d failed", failed)
	}
}

func TestACancelledCallLeavesAndFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backend.New(backend.Config{Latency: time.Second, Capacity: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one runs, one queues
			wg.Go(func() {
				if _, err := s.Load(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the end of the context", err)
				}
			})
		}
		wg.Wait()
		equal(t, "stats", s.Stats(), backend.Stats{Calls: 2, Peak: 2, Redundant: 1})
		if value, err := s.Load(t.Context(), "key"); err != nil || !strings.Contains(value, "(answer 3 of ") {
			t.Errorf("the next call: %q, %v", value, err)
		}
	})
}

func TestAnswersAreNumberedAndTheirTimesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := backend.New(backend.Config{Latency: 250 * time.Millisecond, Capacity: 1}), backend.New(backend.Config{})
		began := time.Now()
		values := make([]string, 2)
		var all sync.WaitGroup
		for range values {
			all.Go(func() {
				value, err := s.Load(t.Context(), "key")
				if v, known := price.Parse(value); err != nil || !known {
					t.Errorf("%q, %v", value, err)
				} else {
					equal(t, "price", v.Price, "key costs 19.99 EUR")
					values[int(v.Delta/(250*time.Millisecond))-1] = value // the second queued for as long as the first took
				}
			})
		}
		all.Wait()
		foreign, _ := other.Load(t.Context(), "key")
		time.Sleep(time.Second)
		for i, value := range values {
			equal(t, "answered", s.Answered(value).Sub(began), time.Duration(i+1)*250*time.Millisecond)
		}
		for _, value := range []string{foreign, "", "19.99", strings.Replace(values[0], "(answer ", "(answer 9", 1)} {
			if at := s.Answered(value); !at.IsZero() {
				t.Errorf("%q was answered at %v", value, at)
			}
		}
		if other.Answered(foreign).IsZero() || !backend.IsAnswer("key", values[0]) || backend.IsAnswer("another", values[0]) {
			t.Error("an answer is not recognised")
		}
	})
}
