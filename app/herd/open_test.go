package herd_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// first are the first n moments of a schedule.
func first(n int, seed uint64, rate float64) (all []time.Duration) {
	for due := range herd.Schedule(seed, rate) {
		if all = append(all, due); len(all) == n {
			break
		}
	}
	return all
}

func TestAScheduleIsAFunctionOfSeedAndRate(t *testing.T) {
	const n = 100_000
	a := first(n, 1, 400)
	if !slices.Equal(a, first(n, 1, 400)) {
		t.Error("the same seed and rate, and another schedule")
	}
	if slices.Equal(a[:10], first(10, 2, 400)) {
		t.Error("another seed, and the same schedule")
	}
	if took := a[n-1].Seconds(); math.Abs(took-n/400.0) > 3*math.Sqrt(n)/400 {
		t.Errorf("%d requests in %v s, want %v", n, took, n/400.0)
	}
	if double := first(n, 1, 800); math.Abs(double[n-1].Seconds()-a[n-1].Seconds()/2) > 1e-6 {
		t.Errorf("at twice the rate it takes %v, not half of %v", double[n-1], a[n-1])
	}
	long := 0 // e^-1 of the pauses are longer than the mean
	for i := range n - 1 {
		if a[i+1]-a[i] > time.Second/400 {
			long++
		}
	}
	if share := float64(long) / n; math.Abs(share-math.Exp(-1)) > 0.005 {
		t.Errorf("%.3f of the pauses are longer than the mean, want %.3f", share, math.Exp(-1))
	}
}

// Nobody waits for the answer of another: latency counts from the moment in which the request was due.
func TestOpenTrafficAsksWhenItIsDueHoweverSlowTheAnswersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(always(2*time.Second), r)
		s.Rate, s.Seed = 400, 7
		phase := s.Flow(t.Context(), 10*time.Second)
		l := s.Ledger()
		r.check(t, l)

		var due []time.Duration
		for at := range herd.Schedule(7, 400) {
			if at >= 10*time.Second {
				break
			}
			due = append(due, at)
		}
		if l.Requests != len(due) || l.NotSent != 0 {
			t.Errorf("%d requests and %d not sent, want %d", l.Requests, l.NotSent, len(due))
		}
		if l.Latency.P50 != 2*time.Second || l.Latency.Max != 2*time.Second {
			t.Errorf("latency %v", l.Latency)
		}
		if phase.Elapsed < 11900*time.Millisecond || phase.Elapsed > 12*time.Second {
			t.Errorf("it took %v", phase.Elapsed)
		}
		if len(r.starts) != 20 {
			t.Errorf("requests of %d workers", len(r.starts))
		}
	})
}

func TestOpenTrafficBeyondItsLimitIsNotSentAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := stream(&scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
			<-release
			return &cache.Result{Outcome: cache.Hit}, nil
		}}, herd.NoObserver{})
		s.Rate = 20_000
		go func() {
			time.Sleep(2 * time.Second)
			close(release)
		}()
		s.Flow(t.Context(), time.Second)
		l := s.Ledger()
		due := 0
		for at := range herd.Schedule(0, 20_000) {
			if at >= time.Second {
				break
			}
			due++
		}
		if l.Requests != 10_000 || l.NotSent != due-10_000 {
			t.Errorf("%d requests, %d not sent, want 10000 and %d", l.Requests, l.NotSent, due-10_000)
		}
		if l.Latency.Max < 1900*time.Millisecond || l.Latency.Max > 2*time.Second {
			t.Errorf("the longest latency is %v, want that of the first", l.Latency.Max)
		}
	})
}
