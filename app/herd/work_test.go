package herd_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// refreshing begins a refresh of 5 s with each request of worker 1. Its backend call is repeated.
var refreshing = &scripted{get: func(ctx context.Context, w herd.Worker) (*cache.Result, error) {
	if w.Number == 1 {
		ctx, end := herd.Probe{}.Refresh(context.WithoutCancel(ctx), "key")
		go func() {
			time.Sleep(5 * time.Second)
			herd.CountCall(ctx, false, true)
			end(&cache.Result{Outcome: cache.Filled, Counts: cache.Counts{BackendCalls: 1, SetsReplaced: 1}, Sent: cache.Sent{StoreAndUnlock: 1}}, nil)
		}()
	}
	return &cache.Result{Outcome: cache.Hit, Counts: cache.Counts{Hits: 1}}, nil
}}

// checkWorks holds the ledger against n requests, w of which began a refresh.
func checkWorks(t *testing.T, l herd.Ledger, n, w int) {
	t.Helper()
	want := cache.Counts{Hits: n, BackendCalls: w, SetsReplaced: w}
	if l.Requests != n || l.Works != w || l.Counts != want || l.Repeated != w || l.Sent.StoreAndUnlock != w || l.Outcomes[cache.Filled] != 0 {
		t.Errorf("%d requests and %d works: %+v, want %d, %d: %+v", l.Requests, l.Works, l.Sum, n, w, want)
	}
	if len(l.Latencies()) != n || l.Latency.Max != 0 {
		t.Errorf("%d latencies up to %v: nobody waited for the work", len(l.Latencies()), l.Latency.Max)
	}
}

func TestARoundWaitsForItsWorkInTheBackgroundAndCountsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := 0
		h := herd.Herd{Strategy: refreshing, Workers: 10, Rounds: 3, Keeper: &keeper{}, Observer: herd.NoObserver{}}
		h.Keep = func(r herd.Response) {
			if r.Work == herd.Refresh {
				kept++
			}
		}
		started := time.Now()
		l, err := h.Run(t.Context())
		if err != nil || time.Since(started) != 15*time.Second || kept != 3 {
			t.Errorf("took %v, kept %d works, %v", time.Since(started), kept, err)
		}
		checkWorks(t, l, 30, 3)
	})
}

func TestAPhaseWaitsForItsWorkInTheBackgroundAndCountsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(refreshing, r)
		phase := s.Flow(t.Context(), 3*time.Second)
		l := s.Ledger()
		r.check(t, l)
		if phase.Works != len(r.starts[1]) || phase.Elapsed < 5*time.Second || phase.Elapsed > 8*time.Second {
			t.Errorf("%d works of %d requests in %v", phase.Works, len(r.starts[1]), phase.Elapsed)
		}
		checkWorks(t, l, phase.Requests, phase.Works)
	})
}
