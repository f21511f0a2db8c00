package herd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
)

// recorder is an observer that keeps what it is told, and when.
type recorder struct {
	mu     sync.Mutex
	open   map[int]int // round -> requests on their way; there is an entry while the round is open
	rounds []herd.RoundSummary
	starts map[int][]time.Time // by worker
	faults []string
}

func newRecorder() *recorder {
	return &recorder{open: map[int]int{}, starts: map[int][]time.Time{}}
}

type roundKey struct{}

func (r *recorder) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[round.Number] = 0
	return context.WithValue(ctx, roundKey{}, round.Number), func(s herd.RoundSummary) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[round.Number] != 0 {
			r.faults = append(r.faults, "a round ended with requests on their way")
		}
		delete(r.open, round.Number)
		r.rounds = append(r.rounds, s)
	}
}

func (r *recorder) Worker(ctx context.Context, worker herd.Worker) (context.Context, func(*herd.Response)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.open[worker.Round]; !open || ctx.Value(roundKey{}) != worker.Round {
		r.faults = append(r.faults, "a request outside of its round")
	}
	r.open[worker.Round]++
	r.starts[worker.Number] = append(r.starts[worker.Number], time.Now())
	return ctx, func(*herd.Response) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open[worker.Round]--
	}
}

// check checks what holds of every stream, and that the rounds add up to the ledger.
func (r *recorder) check(t *testing.T, l herd.Ledger) {
	t.Helper()
	for _, fault := range r.faults {
		t.Error(fault)
	}
	if len(r.open) > 0 {
		t.Errorf("open rounds: %v", r.open)
	}
	var sum cache.Counts
	requests := 0
	for _, s := range r.rounds {
		sum.Add(s.Counts)
		for _, n := range s.Outcomes {
			requests += n
		}
	}
	if sum != l.Counts || requests != l.Requests || len(r.rounds) != l.Rounds {
		t.Errorf("the rounds add up to %+v of %d requests, the ledger has %+v", sum, requests, l)
	}
}

func aside(fill time.Duration) cache.Aside {
	return cache.Aside{Store: cachetest.NewStore(), Backend: &cachetest.Loader{Answer: cachetest.Takes(fill, "19.99")},
		Probe: cache.NoProbe{}, TTL: 3 * time.Second}
}

func stream(s cache.Strategy, o herd.Observer) *herd.Stream {
	return &herd.Stream{Strategy: s, Key: "key", Workers: 20, Think: 300 * time.Millisecond, Patience: time.Second, Observer: o}
}

func TestAStreamOfFixedHasOneRoundAndOneCallForEachExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(&cache.Fixed{Aside: aside(250 * time.Millisecond),
			Lock: cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken}, WaitTimeout: 12 * time.Second}, r)
		phase := s.Flow(t.Context(), 31*time.Second)
		l := s.Ledger()
		r.check(t, l)
		// A cycle is 3 s of hits, up to some 50 ms until somebody looks, and a fill of 250 ms: the tenth ends
		// at about 29.7 s, and the eleventh would begin at 32.7 s.
		if l.Expiries != 10 || l.BackendCalls != 10 || l.Rounds != 11 || phase.Counts != l.Counts || phase.Requests != l.Requests {
			t.Errorf("phase %+v, ledger %+v", phase, l)
		}
		for i, s := range r.rounds {
			if want := 1; i < 10 && (s.Expiries != want || s.Outcomes[cache.Filled] != want || s.Outcomes[cache.Waited] < 5) {
				t.Errorf("round %d: %+v", s.Number, s)
			}
		}
		if last := r.rounds[10]; last.Misses != 0 {
			t.Errorf("the rest of the phase: %+v", last)
		}
		if l.WakeLag.P50 < 5*time.Millisecond || l.WakeLag.Max > 50*time.Millisecond || l.Latency.Max > 300*time.Millisecond {
			t.Errorf("wake lag %+v, latency %+v", l.WakeLag, l.Latency)
		}
		if l.InRounds != phase.Elapsed || phase.Elapsed < 30*time.Second || phase.Elapsed > 31*time.Second+300*time.Millisecond {
			t.Errorf("flowed for %v, ledger %v", phase.Elapsed, l.InRounds)
		}
		if v := herd.JudgeStream(herd.JudgeSingleFill)(l); !v.OK || !v.Invariant {
			t.Errorf("verdict %+v", v)
		}
	})
}

func TestAStreamOfBrokenShowsAHerdInEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(&cache.Broken{Aside: aside(250 * time.Millisecond)}, r)
		s.Flow(t.Context(), 31*time.Second)
		l := s.Ledger()
		r.check(t, l)
		if l.BackendCalls != l.Misses || l.Rounds < 9 || l.Rounds-l.Expiries > 1 {
			t.Errorf("ledger %+v", l)
		}
		for _, s := range r.rounds[:l.Expiries] {
			// Each of the 20 asks every 300 ms on average, so most of them miss within the 250 ms of the first fill.
			if s.Expiries != 1 || s.BackendCalls < 5 || s.BackendCalls > 20 {
				t.Errorf("round %d: %+v", s.Number, s)
			}
		}
		if v := herd.JudgeStream(herd.JudgeHerd)(l); !v.OK || v.Invariant {
			t.Errorf("verdict %+v", v)
		}
	})
}

// always answers after d.
func always(d time.Duration) *scripted {
	return &scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
		time.Sleep(d)
		return &cache.Result{Outcome: cache.Hit, Counts: cache.Counts{Hits: 1}}, nil
	}}
}

func TestWorkersOfAStreamThinkAndAreNotInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		started := time.Now()
		s := stream(always(0), r)
		s.Flow(t.Context(), 30*time.Second)
		l := s.Ledger()
		r.check(t, l)
		if l.Requests < 1900 || l.Requests > 2100 { // 20 workers x 30 s / 300 ms
			t.Errorf("%d requests", l.Requests)
		}
		moments := map[time.Time]bool{}
		shortest, longest := time.Hour, time.Duration(0)
		for n, starts := range r.starts {
			if first := starts[0].Sub(started); first >= 300*time.Millisecond {
				t.Errorf("worker %d began after %v", n, first)
			}
			for i, at := range starts {
				moments[at] = true
				if i == 0 {
					continue
				}
				pause := at.Sub(starts[i-1])
				shortest, longest = min(shortest, pause), max(longest, pause)
			}
		}
		ms := time.Millisecond
		if shortest < 150*ms || shortest > 160*ms || longest < 440*ms || longest >= 450*ms {
			t.Errorf("workers think for %v to %v", shortest, longest)
		}
		if len(moments) < l.Requests*9/10 || len(r.starts) != 20 {
			t.Errorf("%d requests of %d workers at %d moments", l.Requests, len(r.starts), len(moments))
		}
		if v := herd.JudgeStream(herd.JudgeHerd)(l); !v.OK || v.Text != "0 backend calls / 0 expiries: the key did not expire in this time" {
			t.Errorf("verdict %+v", v)
		}
	})
}

func TestStreamsInTurnNeverMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inFlight := [2]int{}
		of := func(i int) *herd.Stream {
			return stream(&scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
				mu.Lock()
				inFlight[i]++
				if inFlight[1-i] > 0 {
					t.Error("requests of both streams are on their way")
				}
				mu.Unlock()
				time.Sleep(700 * time.Millisecond)
				mu.Lock()
				inFlight[i]--
				mu.Unlock()
				return &cache.Result{Outcome: cache.Hit}, nil
			}}, herd.NoObserver{})
		}
		streams := []*herd.Stream{of(0), of(1)}
		total := [2]int{}
		for phase := range 6 {
			p := streams[phase%2].Flow(t.Context(), 5*time.Second)
			if p.Elapsed < 5*time.Second || p.Elapsed > 5700*time.Millisecond || p.Requests < 80 || p.Requests > 140 {
				t.Errorf("phase %d: %+v", phase, p)
			}
			total[phase%2] += p.Requests
		}
		for i, s := range streams {
			if l := s.Ledger(); l.Requests != total[i] || l.Latency.P50 != 700*time.Millisecond || l.Latency.Max != 700*time.Millisecond {
				t.Errorf("ledger %+v of %d requests", l, total[i])
			}
		}
	})
}

func TestAnInterruptedStreamAnswersWhoAskedAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(always(100*time.Millisecond), r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		phase := s.Flow(ctx, 0)
		l := s.Ledger()
		r.check(t, l)
		if phase.Elapsed < time.Second || phase.Elapsed > 1100*time.Millisecond || l.Outcomes[cache.Hit] != l.Requests || l.Requests < 20 {
			t.Errorf("flowed for %v, ledger %+v", phase.Elapsed, l)
		}
		for _, starts := range r.starts {
			if last := starts[len(starts)-1]; last.After(time.Now().Add(time.Second - phase.Elapsed)) {
				t.Error("a request began after the interrupt")
			}
		}
	})
}

func TestAStreamsPatienceHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stream(&scripted{get: func(ctx context.Context, _ herd.Worker) (*cache.Result, error) {
			<-ctx.Done()
			return &cache.Result{Outcome: cache.Failed}, context.Cause(ctx)
		}}, herd.NoObserver{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		phase := s.Flow(ctx, 0)
		l := s.Ledger()
		if phase.Elapsed != 2*time.Second || l.Outcomes[cache.Failed] != 20 || !errors.Is(l.OtherError, context.DeadlineExceeded) {
			t.Errorf("flowed for %v, ledger %+v", phase.Elapsed, l)
		}
	})
}

func TestRoundsOfAStreamStaySmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := stream(always(0), r)
		s.Think = 10 * time.Millisecond
		s.Flow(t.Context(), 10*time.Second)
		l := s.Ledger()
		r.check(t, l)
		for _, s := range r.rounds[:len(r.rounds)-1] {
			if s.Hits != 550 { // of two steps each: the request and its GET
				t.Errorf("round %d has %d requests", s.Number, s.Hits)
			}
		}
		if l.Requests < 19_000 || l.Rounds != (l.Requests+549)/550 {
			t.Errorf("%d requests in %d rounds", l.Requests, l.Rounds)
		}
	})
}
