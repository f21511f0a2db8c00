package herd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func TestAgeIsFromTheBackendsAnswerAndOverdueWhatIsBeyondTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		// Worker n is served a value after n ms; that of a stranger has no age, nor has an error.
		s := &scripted{get: func(_ context.Context, w herd.Worker) (*cache.Result, error) {
			time.Sleep(time.Duration(w.Number) * time.Millisecond)
			switch w.Number {
			case 99:
				return &cache.Result{Outcome: cache.Hit, Value: "a stranger's"}, nil
			case 100:
				return &cache.Result{Outcome: cache.Failed, Value: "ours"}, errors.New("down")
			}
			return &cache.Result{Outcome: cache.Hit, Value: "ours"}, nil
		}}
		answered := func(value string) time.Time {
			if value == "ours" {
				return made
			}
			return time.Time{}
		}
		h := herd.Herd{Strategy: s, Workers: 100, Rounds: 1, Keeper: &keeper{wait: 2 * time.Second}, Observer: herd.NoObserver{},
			Results: herd.Results{TTL: 2050 * time.Millisecond, Answered: answered}}
		l, err := h.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ms := time.Millisecond
		if want := (herd.Quantiles{P50: 2049 * ms, P95: 2094 * ms, P99: 2098 * ms, Max: 2098 * ms}); l.Age != want {
			t.Errorf("age: got %v, want %v", l.Age, want)
		}
		if want := (herd.Quantiles{P95: 44 * ms, P99: 48 * ms, Max: 48 * ms}); l.Overdue != want {
			t.Errorf("overdue: got %v, want %v", l.Overdue, want)
		}
	})
}

func TestAgesOfHoursAreExactToo(t *testing.T) {
	now := time.Now()
	f := herd.NewFold(1, time.Hour)
	for i, age := range []time.Duration{3*time.Hour + 1500*time.Nanosecond, 2 * time.Hour, 71 * time.Minute, 1500 * time.Nanosecond} {
		f.Add(herd.Response{Worker: herd.Worker{Round: 1, Number: i + 1}, At: now, Answered: now.Add(-age)})
	}
	l := f.Ledger()
	if us := time.Microsecond; l.Age.Max != 3*time.Hour+us || l.Age.P50 != 71*time.Minute || l.Overdue.Max != 2*time.Hour+us || l.Overdue.P50 != 11*time.Minute {
		t.Errorf("age %v, overdue %v", l.Age, l.Overdue)
	}
}

func TestCallsThatTheCacheShouldHaveSparedAreTheirRequests(t *testing.T) {
	s := &scripted{get: func(ctx context.Context, w herd.Worker) (*cache.Result, error) {
		herd.CountCall(ctx, w.Number > 1, w.Round == 2 && w.Number == 1)
		return &cache.Result{Outcome: cache.Filled}, nil
	}}
	herd.CountCall(t.Context(), true, true) // of no request
	h := herd.Herd{Strategy: s, Workers: 50, Rounds: 2, Keeper: &keeper{}, Observer: herd.NoObserver{}}
	l, err := h.Run(t.Context())
	if err != nil || l.Redundant != 98 || l.Repeated != 1 || l.ByRound[0].Redundant != 49 || l.ByRound[0].Repeated != 0 {
		t.Errorf("%d redundant and %d repeated, in round 1 %d and %d; %v", l.Redundant, l.Repeated, l.ByRound[0].Redundant, l.ByRound[0].Repeated, err)
	}
}

// responses are those of a small run of several processes: of each, in the order in which they came. Moments and errors collide.
func responses(random *rand.Rand) [][]herd.Response {
	began := time.Now()
	some := func(n int) int { return random.IntN(n) }
	at := func(n int) time.Time { return began.Add(time.Duration(some(n)) * time.Millisecond) }
	fail := func() error {
		if some(8) > 0 {
			return nil
		}
		return errors.New("error " + strconv.Itoa(some(3)))
	}
	outcomes := cache.Outcomes()
	var all [][]herd.Response
	for process := range 3 {
		var own []herd.Response
		for round := range 4 {
			for n := range 8 {
				r := herd.Response{Worker: herd.Worker{Round: round + 1, Number: process*8 + n + 1}, Elapsed: time.Duration(some(20)) * time.Millisecond,
					At: at(40), Err: fail(), Redundant: some(2), Repeated: some(2), Work: []herd.Work{"", "", herd.Flight, herd.Refresh}[some(4)]}
				r.Outcome = outcomes[some(len(outcomes))]
				r.Counts = cache.Counts{Hits: some(3), Misses: some(3), Held: some(2), BackendCalls: some(2), SetsAbsent: some(2), SetsReplaced: some(2)}
				r.Sent = cache.Sent{Get: some(4), Set: some(2)}
				r.Errors = cache.Errors{Get: fail(), Lock: fail(), Set: fail(), Unlock: fail(), Load: fail()}
				r.Waited = time.Duration(some(2))
				if some(3) == 0 {
					r.Loaded = at(40)
				}
				if some(2) == 0 {
					r.Answered = began.Add(-time.Duration(some(3000)) * time.Millisecond)
				}
				own = append(own, r)
			}
		}
		all = append(all, own)
	}
	return all
}

// fold adds up the responses of each process, and joins the processes in the order given.
func fold(processes [][]herd.Response, order []int) herd.Ledger {
	whole := herd.NewFold(24, 2*time.Second)
	for _, p := range order {
		one := herd.NewFold(24, 2*time.Second)
		for _, r := range processes[p] {
			one.Add(r)
		}
		whole.Join(one, 0)
	}
	return whole.Ledger()
}

func TestTheLedgerIsTheSameForAnyOrderOfResponses(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		processes := responses(random)
		want := fold(processes, []int{0, 1, 2})
		for _, own := range processes {
			random.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		}
		if got := fold(processes, random.Perm(3)); !same(got, want) {
			t.Fatalf("seed %d: got\n%+v\nwant\n%+v", seed, got, want)
		}
	}
}

// same compares all that a ledger tells; errors by their text.
func same(a, b herd.Ledger) bool {
	texts := func(l herd.Ledger) string {
		return fmt.Sprint(l.Errors.Get, l.Errors.Lock, l.Errors.Set, l.Errors.Unlock, l.Errors.Load, l.OtherError)
	}
	return texts(a) == texts(b) && reflect.DeepEqual(a.Latencies(), b.Latencies()) && reflect.DeepEqual(plain(a), plain(b))
}

func plain(l herd.Ledger) herd.Ledger {
	l.Errors, l.OtherError = cache.Errors{}, nil
	return l
}

func TestTheFirstErrorOfEachKindIsTheEarliest(t *testing.T) {
	now := time.Now()
	f := herd.NewFold(2, time.Second)
	add := func(worker int, at time.Duration, errs cache.Errors, err error) {
		f.Add(herd.Response{Worker: herd.Worker{Round: 1, Number: worker}, At: now.Add(at), Result: cache.Result{Errors: errs}, Err: err})
	}
	timeout, reset, refused := errors.New("timeout"), errors.New("reset"), errors.New("refused")
	add(1, 3, cache.Errors{Get: timeout}, timeout)
	add(2, 2, cache.Errors{Get: reset, Set: refused}, cache.ErrWaitTimeout)
	add(3, 1, cache.Errors{}, nil)
	l := f.Ledger()
	if got := fmt.Sprint(l.FirstErrors()); got != fmt.Sprint([]error{reset, refused, cache.ErrWaitTimeout}) {
		t.Errorf("first errors %s", got)
	}
}
