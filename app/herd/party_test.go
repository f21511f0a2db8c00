package herd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// process is another process's workers: they answer after a time, and it is lost in a round.
type process struct {
	number, workers int
	late, takes     time.Duration
	lostIn          int
	elsewhere       bool

	mu        sync.Mutex
	gathered  []int // rounds
	dismissed int
}

var errLost = errors.New("process 2 was killed")

func (p *process) Gather(_ context.Context, round herd.Round) (herd.Gathered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathered = append(p.gathered, round.Number)
	return gathered{p, round}, nil
}

type gathered struct {
	*process
	round herd.Round
}

func (g gathered) Dismiss() { g.dismissed++ }

func (g gathered) Release(_ context.Context, tell func(herd.Response)) (time.Time, error) {
	time.Sleep(g.late)
	opened := time.Now()
	if g.lostIn == g.round.Number {
		return time.Time{}, errLost
	}
	time.Sleep(g.takes)
	for n := range g.workers {
		r := herd.Response{Worker: herd.Worker{Round: g.round.Number, Number: n + 1, Process: g.number}, Elapsed: g.takes, At: time.Now(), Elsewhere: g.elsewhere,
			Answered: time.Now().Add(-time.Second)}
		r.Outcome = cache.Waited
		if g.number == 1 && n == 0 {
			r.Outcome, r.BackendCalls, r.SetsAbsent, r.Loaded = cache.Filled, 1, 1, time.Now()
		}
		tell(r)
	}
	return opened, nil
}

func TestAHerdOfSeveralProcessesHasOneLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		parties := []herd.Party{&process{number: 1, workers: 5, takes: 100 * ms}, &process{number: 2, workers: 5, late: 7 * ms, takes: 100 * ms},
			&process{number: 3, workers: 5, late: 3 * ms, takes: 200 * ms}}
		h := herd.Herd{Workers: 15, Rounds: 4, Keeper: &keeper{wait: time.Second}, Observer: herd.NoObserver{}, Parties: parties}
		l, err := h.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l.Requests != 60 || l.Processes != 3 || l.Rounds != 4 || l.BackendCalls != 4 || l.Expiries != 4 || l.Workers != 15 {
			t.Errorf("ledger: %+v", l)
		}
		if l.Spread.Max != 7*ms || l.Spread.P50 != 7*ms {
			t.Errorf("spread %v", l.Spread)
		}
		// The fill was known 100 ms after the release; process 2 answers 7 ms later, process 3 103 ms later.
		if l.WakeLag.Max != 103*ms || l.WakeLag.P50 != 7*ms || l.Age.Max != time.Second || l.InRounds != 4*203*ms {
			t.Errorf("wake lag %v, age %v, in rounds %v", l.WakeLag, l.Age, l.InRounds)
		}
	})
}

func TestWhatIsElsewhereIsCountedAndItsTimesAreNotHeldAgainstTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parties := []herd.Party{&process{number: 1, workers: 5, takes: 100}, &process{number: 2, workers: 5, takes: 300, elsewhere: true}}
		h := herd.Herd{Workers: 10, Rounds: 1, Keeper: &keeper{}, Observer: herd.NoObserver{}, Parties: parties}
		l, err := h.Run(t.Context())
		if err != nil || l.Requests != 10 || !l.Elsewhere || l.Latency.Max != 300 {
			t.Errorf("%+v, %v", l, err)
		}
		if none := (herd.Quantiles{}); l.Age != none || l.Overdue != none || l.WakeLag != none {
			t.Errorf("age %v, overdue %v, wake lag %v", l.Age, l.Overdue, l.WakeLag)
		}
	})
}

func TestAProcessThatIsLostEndsTheRunAfterTheRoundOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &process{number: 1, workers: 5, takes: 100}, &process{number: 2, workers: 5, lostIn: 2}
		h := herd.Herd{Workers: 10, Rounds: 5, Keeper: &keeper{}, Observer: herd.NoObserver{}, Parties: []herd.Party{one, two}}
		l, err := h.Run(t.Context())
		if !errors.Is(err, errLost) || err.Error() != "in round 2: process 2 was killed" {
			t.Errorf("error %v", err)
		}
		if l.Rounds != 2 || l.Requests != 15 || l.ByRound[1].Requests != 5 || !slices.Equal(one.gathered, []int{1, 2}) {
			t.Errorf("%d rounds, %d requests; process 1 was at the barrier of %v", l.Rounds, l.Requests, one.gathered)
		}
	})
}

func TestAnOutageBeforeARoundSendsTheWorkersAway(t *testing.T) {
	one := &process{number: 1, workers: 5}
	h := herd.Herd{Workers: 5, Rounds: 5, Keeper: &keeper{failIn: 2}, Observer: herd.NoObserver{}, Parties: []herd.Party{one}}
	if l, err := h.Run(t.Context()); !errors.Is(err, errOutage) || l.Requests != 5 || one.dismissed != 1 {
		t.Errorf("%d requests, dismissed %d times, %v", l.Requests, one.dismissed, err)
	}
}

// The workers of each process have their place among all.
func TestWorkersAreNumberedThroughAllProcesses(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{} // the process, by the worker
	for number := range 3 {
		s := &scripted{get: func(_ context.Context, w herd.Worker) (*cache.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[w.Number] = w.Process
			return &cache.Result{Outcome: cache.Hit}, nil
		}}
		h := herd.Herd{Strategy: s, Workers: 4, Process: number + 1, Observer: herd.NoObserver{}}
		crowd, err := h.Gather(t.Context(), herd.Round{Number: 1, Workers: 12, Processes: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := crowd.Release(t.Context(), func(herd.Response) {}); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(seen) != "map[1:1 2:1 3:1 4:1 5:2 6:2 7:2 8:2 9:3 10:3 11:3 12:3]" {
		t.Errorf("workers: %v", seen)
	}
}

// Open traffic is the same, however many processes send it.
func TestOpenTrafficIsDividedAmongProcesses(t *testing.T) {
	due := func(processes int) (offsets []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			streams := &herd.Streams{Workers: 4 * processes}
			for number := range processes {
				s := &scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					offsets = append(offsets, time.Since(began))
					return &cache.Result{Outcome: cache.Hit}, nil
				}}
				streams.Sources = append(streams.Sources, local{&herd.Stream{Strategy: s, Workers: 4, Rate: 100, Seed: 7, Process: number + 1, Processes: processes,
					Observer: herd.NoObserver{}}})
			}
			if phase, err := streams.Flow(t.Context(), 5*time.Second); err != nil || phase.Elapsed > 5*time.Second {
				t.Errorf("%+v, %v", phase, err)
			}
		})
		slices.Sort(offsets)
		return offsets
	}
	one, three := due(1), due(3)
	if len(one) < 400 || !slices.Equal(one, three) {
		t.Errorf("%d requests of one process, %d of three, or at other times", len(one), len(three))
	}
}

// local is a stream of this process as a source.
type local struct{ *herd.Stream }

func (l local) Flow(ctx context.Context, length time.Duration, tell func(herd.Response)) (herd.Flowed, error) {
	l.Keep = tell
	p := l.Stream.Flow(ctx, length)
	return herd.Flowed{Elapsed: p.Elapsed, NotSent: p.NotSent}, nil
}

func TestTheVerdictOnACallForEachProcess(t *testing.T) {
	for _, test := range []struct {
		processes, calls, failed int
		ok                       bool
		text                     string
	}{
		{1, 5, 0, true, "5 backend calls / 5 expiries = 1.0: one backend call per expiry cycle"},
		{1, 6, 0, false, "6 backend calls / 5 expiries = 1.2: not one successful call for each expiry cycle"},
		{8, 40, 0, true, "40 backend calls / 5 expiries = 8.0: one backend call per expiry cycle in each of 8 processes"},
		{8, 39, 0, true, "39 backend calls / 5 expiries = 7.8: at most one backend call per expiry cycle in each of 8 processes"},
		{8, 41, 0, false, "41 backend calls / 5 expiries = 8.2: more than one successful call for each expiry cycle and each of 8 processes"},
		{8, 41, 1, false, "41 backend calls / 5 expiries = 8.2, and 1 of 250 requests failed"},
	} {
		l := herd.Ledger{Processes: test.processes, Sum: herd.Sum{Requests: 250, Expiries: 5, Counts: cache.Counts{BackendCalls: test.calls, BackendErrors: test.failed},
			Outcomes: map[cache.Outcome]int{cache.Failed: test.failed}}}
		if v := herd.JudgeEachProcess(l); v.OK != test.ok || v.Text != test.text {
			t.Errorf("%+v: %+v", test, v)
		}
	}
}
