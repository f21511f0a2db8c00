package herd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// scripted is a strategy that answers by a function, and counts.
type scripted struct {
	get func(ctx context.Context, w herd.Worker) (*cache.Result, error)

	mu       sync.Mutex
	requests []herd.Worker
}

func (s *scripted) Get(ctx context.Context, _ string) (*cache.Result, error) {
	w := herd.WorkerFrom(ctx)
	s.mu.Lock()
	s.requests = append(s.requests, w)
	s.mu.Unlock()
	return s.get(ctx, w)
}

// keeper waits a fixed time for each expiry.
type keeper struct {
	wait   time.Duration
	failIn int // the round before which it fails; 0 never
	round  int
}

var errOutage = errors.New("outage")

func (k *keeper) AwaitExpiry(context.Context, string) error {
	k.round++
	time.Sleep(k.wait)
	if k.round == k.failIn {
		return errOutage
	}
	return nil
}

func TestEachWorkerAsksOncePerRoundAndTheLedgerAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Worker 1 fills after 100 ms, the others wait: worker n has the value n ms after the fill.
		s := &scripted{get: func(_ context.Context, w herd.Worker) (*cache.Result, error) {
			time.Sleep(100 * time.Millisecond)
			if w.Number == 1 {
				return &cache.Result{Outcome: cache.Filled, Loaded: time.Now(), Counts: cache.Counts{
					Misses: 2, Acquired: 1, Released: 1, BackendCalls: 1, SetsAbsent: 1}}, nil
			}
			time.Sleep(time.Duration(w.Number) * time.Millisecond)
			return &cache.Result{Outcome: cache.Waited, Counts: cache.Counts{Misses: 1, Hits: 1, Polls: 1, Held: 1}}, nil
		}}
		h := herd.Herd{Strategy: s, Workers: 100, Rounds: 3, Keeper: &keeper{wait: time.Second}, Observer: herd.NoObserver{}}
		l, err := h.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := cache.Counts{Misses: 3 * 101, Hits: 3 * 99, Polls: 3 * 99, Held: 3 * 99, Acquired: 3, Released: 3,
			BackendCalls: 3, SetsAbsent: 3}
		if l.Counts != want {
			t.Errorf("counts: got %+v, want %+v", l.Counts, want)
		}
		if l.Expiries != 3 || l.ByRound[1].Expiries != 1 {
			t.Errorf("%d expiries, %d of them in round 2", l.Expiries, l.ByRound[1].Expiries)
		}
		if l.Requests != 300 || l.Rounds != 3 || l.Outcomes[cache.Filled] != 3 || l.Outcomes[cache.Waited] != 297 {
			t.Errorf("ledger: %+v", l)
		}
		if len(l.ByRound) != 3 || l.ByRound[2].Number != 3 || l.ByRound[2].Hits != 99 || l.ByRound[2].Outcomes[cache.Filled] != 1 {
			t.Errorf("by round: %+v", l.ByRound)
		}
		seen := map[herd.Worker]int{}
		for _, w := range s.requests {
			seen[w]++
		}
		if len(seen) != 300 {
			t.Errorf("%d different workers asked, want 300", len(seen))
		}
		ms := time.Millisecond
		// 3 x {100, 102..200}: the nearest rank of the median of 300 is the 150th, which is worker 50.
		if want := (herd.Quantiles{P50: 150 * ms, P95: 195 * ms, P99: 199 * ms, Max: 200 * ms}); l.Latency != want {
			t.Errorf("latency: got %v, want %v", l.Latency, want)
		}
		if want := (herd.Quantiles{P50: 51 * ms, P95: 96 * ms, P99: 100 * ms, Max: 100 * ms}); l.WakeLag != want {
			t.Errorf("wake lag: got %v, want %v", l.WakeLag, want)
		}
		if l.InRounds != 600*ms || l.Expiring != 3*time.Second {
			t.Errorf("time: %v in rounds, %v expiring", l.InRounds, l.Expiring)
		}
	})
}

func TestOnlyASetThatFoundTheKeyAbsentEndsAnExpiryCycle(t *testing.T) {
	s := &scripted{get: func(_ context.Context, w herd.Worker) (*cache.Result, error) {
		sets := cache.Counts{SetsReplaced: 1}
		if w.Number == 1 {
			sets = cache.Counts{SetsAbsent: 1}
		}
		return &cache.Result{Outcome: cache.Filled, Counts: sets}, nil
	}}
	h := herd.Herd{Strategy: s, Workers: 10, Rounds: 2, Keeper: &keeper{}, Observer: herd.NoObserver{}}
	if l, err := h.Run(t.Context()); err != nil || l.Expiries != 2 || l.SetsReplaced != 18 {
		t.Errorf("%d expiries, %d SETs replaced a value, %v", l.Expiries, l.SetsReplaced, err)
	}
}

func TestNobodyStartsBeforeTheBarrierOpens(t *testing.T) {
	const workers = 1000
	var inside sync.WaitGroup
	inside.Add(workers)
	// Each request ends only when all have begun: with fewer than all at once this would never end.
	s := &scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
		inside.Done()
		inside.Wait()
		return &cache.Result{Outcome: cache.Hit}, nil
	}}
	h := herd.Herd{Strategy: s, Workers: workers, Rounds: 1, Keeper: &keeper{}, Observer: herd.NoObserver{}}
	if l, err := h.Run(t.Context()); err != nil || l.Outcomes[cache.Hit] != workers {
		t.Errorf("got %v, %v", l.Outcomes, err)
	}
}

func TestFailedRequestsAreCountedAndEndNoRun(t *testing.T) {
	down := errors.New("down")
	s := &scripted{get: func(_ context.Context, w herd.Worker) (*cache.Result, error) {
		if w.Number%2 == 0 {
			return &cache.Result{Outcome: cache.Failed}, down
		}
		return &cache.Result{Outcome: cache.Hit}, nil
	}}
	h := herd.Herd{Strategy: s, Workers: 10, Rounds: 2, Keeper: &keeper{}, Observer: herd.NoObserver{}}
	l, err := h.Run(t.Context())
	if err != nil || l.Rounds != 2 || l.Outcomes[cache.Failed] != 10 || !errors.Is(l.OtherError, down) {
		t.Errorf("got %+v, %v", l, err)
	}
}

func TestAnOutageBetweenRoundsEndsTheRunWithWhatThereIs(t *testing.T) {
	s := &scripted{get: func(context.Context, herd.Worker) (*cache.Result, error) {
		return &cache.Result{Outcome: cache.Hit, Counts: cache.Counts{Hits: 1}}, nil
	}}
	h := herd.Herd{Strategy: s, Workers: 10, Rounds: 5, Keeper: &keeper{failIn: 3}, Observer: herd.NoObserver{}}
	l, err := h.Run(t.Context())
	if !errors.Is(err, errOutage) || l.Rounds != 2 || l.Hits != 20 {
		t.Errorf("got %+v, %v", l, err)
	}
}

func TestACancelledRunKeepsTheRoundItWasIn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{get: func(ctx context.Context, w herd.Worker) (*cache.Result, error) {
		if w.Number == 1 {
			cancel()
		}
		<-ctx.Done()
		return &cache.Result{Outcome: cache.Failed}, ctx.Err()
	}}
	h := herd.Herd{Strategy: s, Workers: 10, Rounds: 5, Keeper: &keeper{}, Observer: herd.NoObserver{}}
	l, err := h.Run(ctx)
	if !errors.Is(err, context.Canceled) || l.Rounds != 1 || l.Outcomes[cache.Failed] != 10 {
		t.Errorf("got %+v, %v", l, err)
	}
}

func TestVerdicts(t *testing.T) {
	ledger := func(workers int, failed int, c cache.Counts) herd.Ledger {
		return herd.Ledger{Workers: workers, Sum: herd.Sum{Requests: 250, Counts: c, Expiries: c.SetsAbsent, Outcomes: map[cache.Outcome]int{cache.Failed: failed},
			Sent: cache.Sent{Set: c.BackendCalls - c.BackendErrors}},
			Errors: cache.Errors{Set: errors.New("OOM"), Unlock: errors.New("NOPERM")}}
	}
	tests := []struct {
		name  string
		judge herd.Judge
		l     herd.Ledger
		want  herd.Verdict
	}{
		{"herd", herd.JudgeHerd, ledger(50, 0, cache.Counts{Misses: 250, BackendCalls: 250, SetsAbsent: 5}),
			herd.Verdict{OK: true, Text: "250 backend calls / 5 expiries = 50.0: a thundering herd"}},
		{"herd of one", herd.JudgeHerd, ledger(1, 0, cache.Counts{Misses: 5, BackendCalls: 5, SetsAbsent: 5}),
			herd.Verdict{OK: true, Invariant: true, Text: "5 backend calls / 5 expiries = 1.0: one worker is no herd"}},
		{"no herd", herd.JudgeHerd, ledger(50, 0, cache.Counts{Misses: 5, BackendCalls: 5, SetsAbsent: 5}),
			herd.Verdict{Invariant: true, Text: "5 backend calls / 5 expiries = 1.0: no herd, although nothing prevents it"}},
		{"a miss without a call", herd.JudgeHerd, ledger(50, 0, cache.Counts{Misses: 250, BackendCalls: 249, SetsAbsent: 5}),
			herd.Verdict{Text: "249 backend calls / 5 expiries = 49.8, but 250 misses: not every miss called the backend"}},
		{"herd with errors", herd.JudgeHerd, ledger(50, 2, cache.Counts{Misses: 250, BackendCalls: 250, SetsAbsent: 5}),
			herd.Verdict{OK: true, Text: "250 backend calls / 5 expiries = 50.0: a thundering herd, and 2 of 250 requests failed"}},
		{"fixed", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 5, SetsAbsent: 5}),
			herd.Verdict{OK: true, Invariant: true, Text: "5 backend calls / 5 expiries = 1.0: one backend call per expiry cycle"}},
		{"lost", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 6, SetsAbsent: 5, Lost: 1}),
			herd.Verdict{Text: "6 backend calls / 5 expiries = 1.2, and 1 fill lock was lost: the fill takes longer than the lock's TTL"}},
		{"too many calls", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 6, SetsAbsent: 5}),
			herd.Verdict{Text: "6 backend calls / 5 expiries = 1.2: not one successful call for each expiry cycle"}},
		{"failed calls that cost nobody", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 6, BackendErrors: 1, SetsAbsent: 5}),
			herd.Verdict{OK: true, Text: "6 backend calls / 5 expiries = 1.2: one fill per expiry cycle, and 1 failed call"}},
		{"others filled", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{Hits: 250}),
			herd.Verdict{OK: true, Invariant: true, Text: "0 backend calls / 0 expiries: every cycle was filled by another process"}},
		{"one of each", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 1, SetsAbsent: 1}),
			herd.Verdict{OK: true, Invariant: true, Text: "1 backend call / 1 expiry = 1.0: one backend call per expiry cycle"}},
		{"a lock deleted by another", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 6, SetsAbsent: 5, Lost: 2, LostEarly: 1}),
			herd.Verdict{Text: "6 backend calls / 5 expiries = 1.2, and 2 fill locks were lost, before the TTL had passed: another client deleted the lock, or Redis was emptied"}},
		{"an unanswered SET", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 3, SetsAbsent: 2, SetsUnanswered: 1, StoreErrors: 1}),
			herd.Verdict{Unknown: true, Text: "3 backend calls / 2 expiries = 1.5: cannot be judged: 1 SET was not answered"}},
		{"an unanswered SET and its release", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 3, SetsAbsent: 2, SetsUnanswered: 1, ReleasesUnanswered: 1, Lost: 1}),
			herd.Verdict{Unknown: true, Text: "3 backend calls / 2 expiries = 1.5: cannot be judged: 1 SET and 1 release were not answered"}},
		{"an unanswered SET of a herd", herd.JudgeHerd, ledger(50, 0, cache.Counts{Misses: 250, BackendCalls: 250, SetsAbsent: 5, SetsUnanswered: 2}),
			herd.Verdict{Unknown: true, Text: "250 backend calls / 5 expiries = 50.0: cannot be judged: 2 SETs were not answered"}},
		{"tolerated polls", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 5, SetsAbsent: 5, StoreErrors: 9, Tolerated: 9}),
			herd.Verdict{OK: true, Invariant: true, Text: "5 backend calls / 5 expiries = 1.0: one backend call per expiry cycle"}},
		{"a user without EVAL", herd.JudgeSingleFill, ledger(50, 0, cache.Counts{BackendCalls: 2, SetsAbsent: 2, ReleasesRefused: 2, StoreErrors: 2}),
			herd.Verdict{Invariant: true, Text: "2 backend calls / 2 expiries = 1.0, and 2 releases of the fill lock were refused (NOPERM)"}},
		{"maxmemory", herd.JudgeHerd, ledger(50, 0, cache.Counts{Misses: 100, BackendCalls: 100, SetsRefused: 100, StoreErrors: 100}),
			herd.Verdict{Text: "100 backend calls / 0 expiries: no value was cached, so there was no cycle to see, and 100 SETs were refused (OOM)"}},
		{"a backend that is down", herd.JudgeHerd, ledger(50, 250, cache.Counts{Misses: 250, BackendCalls: 250, BackendErrors: 250}),
			herd.Verdict{Text: "250 backend calls / 0 expiries: no value was cached, so there was no cycle to see, and 250 of 250 requests failed"}},
		{"nothing happened", herd.JudgeSingleFill, herd.Ledger{},
			herd.Verdict{Invariant: true, Text: "0 backend calls / 0 expiries: nobody asked"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.judge(test.l); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
