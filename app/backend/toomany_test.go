package backend_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/backend"
)

// Asking for the peak does not change it: who asks twice, or whose push fails, gets it again.
func TestTheRecentPeakIsTheHighestOfTwoSecondsHoweverOftenItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backend.New(backend.Config{Latency: 250 * time.Millisecond, Capacity: 10})
		herd(t, s, 50) // they leave by ten: there are 50 for 0.25 s, 40 until 0.5 s, and none after 1.25 s
		for range 3 {
			equal(t, "recent peak", s.RecentPeak(), 50)
		}
		time.Sleep(950 * time.Millisecond)
		equal(t, "recent peak after 2.2 s", s.RecentPeak(), 50)
		time.Sleep(200 * time.Millisecond)
		equal(t, "recent peak after 2.4 s", s.RecentPeak(), 40)
		time.Sleep(time.Second)
		equal(t, "recent peak after 3.4 s", s.RecentPeak(), 0)
	})
}

func TestTheRecentPeakKnowsALevelThatStandsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backend.New(backend.Config{Latency: 10 * time.Second})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _, _ = s.Load(t.Context(), "key") })
		}
		time.Sleep(9 * time.Second)
		equal(t, "while it stands", s.RecentPeak(), 3)
		wg.Wait()
		time.Sleep(1900 * time.Millisecond)
		equal(t, "1.9 s after its end", s.RecentPeak(), 3)
		time.Sleep(200 * time.Millisecond)
		equal(t, "2.1 s after its end", s.RecentPeak(), 0)
	})
}

// A call is redundant beside another for the same key, and repeated soon after an answer.
func TestCallsThatTheCacheShouldHaveSpared(t *testing.T) {
	const ttl, latency = time.Second, 100 * time.Millisecond
	type load struct {
		at  time.Duration
		key string
	}
	ms := time.Millisecond
	for name, test := range map[string]struct {
		loads               []load
		fails               string
		redundant, repeated int
	}{
		"one":                          {loads: []load{{0, "a"}}},
		"five at once":                 {loads: []load{{0, "a"}, {0, "a"}, {0, "a"}, {0, "a"}, {0, "a"}}, redundant: 4},
		"five keys at once":            {loads: []load{{0, "a"}, {0, "b"}, {0, "c"}, {0, "d"}, {0, "e"}}},
		"in the last moment of a call": {loads: []load{{0, "a"}, {99 * ms, "a"}}, redundant: 1},
		"soon after the answer":        {loads: []load{{0, "a"}, {101 * ms, "a"}}, repeated: 1},
		"just under half the TTL":      {loads: []load{{0, "a"}, {599 * ms, "a"}}, repeated: 1},
		"at half the TTL":              {loads: []load{{0, "a"}, {600 * ms, "a"}}},
		"another key":                  {loads: []load{{0, "a"}, {101 * ms, "b"}}},
		"after a failure":              {loads: []load{{0, "a"}, {101 * ms, "a"}}, fails: "1"},
		"beside a call that will fail": {loads: []load{{0, "a"}, {50 * ms, "a"}}, fails: "1-2", redundant: 1},
		"redundant is not repeated":    {loads: []load{{0, "a"}, {200 * ms, "a"}, {250 * ms, "a"}}, redundant: 1, repeated: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures, err := backend.ParseFailures(test.fails)
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				told := backend.Stats{}
				s := backend.New(backend.Config{Latency: latency, TTL: ttl, Failures: failures, OnCall: func(_ context.Context, c backend.Call) {
					mu.Lock()
					defer mu.Unlock()
					if c.Redundant {
						told.Redundant++
					}
					if c.Repeated {
						told.Repeated++
					}
				}})
				var wg sync.WaitGroup
				for _, l := range test.loads {
					wg.Go(func() {
						time.Sleep(l.at)
						_, _ = s.Load(t.Context(), l.key)
					})
				}
				wg.Wait()
				equal(t, "redundant", s.Stats().Redundant, test.redundant)
				equal(t, "repeated", s.Stats().Repeated, test.repeated)
				equal(t, "redundant, as told", told.Redundant, test.redundant)
				equal(t, "repeated, as told", told.Repeated, test.repeated)
			})
		})
	}
}
