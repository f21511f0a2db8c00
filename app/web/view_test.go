package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/herd"
	"cachelab/app/web"
)

const ms = time.Millisecond

// picture is what a visitor is sent, as far as it is looked at here.
type picture struct {
	InFlight int `json:"in_flight"`
	Queued   int
	Waiting  int
	Calls    int
	Holder   int
	Key      *life
	Lock     *life
	Faults   []struct {
		Round int
		Text  string
	}
	Round *struct {
		Number   int
		Calls    int
		Peak     int
		Over     bool
		Elapsed  time.Duration `json:"elapsed_ns"`
		InFlight []struct {
			At time.Duration `json:"at_ns"`
			N  int
		} `json:"in_flight"`
		Rows []struct {
			Worker  int
			Outcome string
			Winner  bool
			Answer  time.Duration `json:"answer_ns"`
			Bars    []bar
		}
	}
	Series  []herd.Step
	Stretch time.Duration `json:"stretch_ns"`
}

type life struct {
	Left   time.Duration `json:"left_ns"`
	Length time.Duration `json:"length_ns"`
}

type bar struct {
	Kind   string
	Start  time.Duration `json:"start_ns"`
	End    time.Duration `json:"end_ns"`
	Queued time.Duration `json:"queued_ns"`
	Text   string
	Open   bool
}

func (b bar) String() string {
	text := fmt.Sprintf("%s %d-%d", b.Kind, b.Start/ms, b.End/ms)
	if b.Queued > 0 {
		text += fmt.Sprintf(" queued %d", b.Queued/ms)
	}
	if b.Text != "" {
		text += " " + b.Text
	}
	if b.Open {
		text += " ..."
	}
	return text
}

func look(t *testing.T, v *web.View) (p picture) {
	t.Helper()
	text, _ := web.Picture(v, -1)
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// bars are a worker's, in words.
func bars(t *testing.T, p picture, worker int) string {
	t.Helper()
	for _, row := range p.Round.Rows {
		if row.Worker == worker {
			var all []string
			for _, b := range row.Bars {
				all = append(all, b.String())
			}
			return strings.Join(all, ", ")
		}
	}
	t.Fatalf("worker %d is not drawn", worker)
	return ""
}

// round begins a round, and returns what tells of a step of a worker and of its answer, and what ends the round.
func round(v *web.View, number, workers int) (tell func(int, events.Event), answer func(int, cache.Outcome), end func(herd.Sum)) {
	o := v.Observe(herd.NoObserver{})
	_, over := o.Round(context.Background(), herd.Round{Number: number, Workers: workers})
	answers := map[int]func(*herd.Response){}
	for n := 1; n <= workers; n++ {
		_, answers[n] = o.Worker(context.Background(), herd.Worker{Round: number, Number: n})
	}
	tell = func(worker int, e events.Event) {
		e.Worker = herd.Worker{Round: number, Number: worker}
		v.Tell(e)
	}
	answer = func(worker int, outcome cache.Outcome) {
		answers[worker](&herd.Response{Worker: herd.Worker{Round: number, Number: worker}, Result: cache.Result{Outcome: outcome}, At: time.Now()})
	}
	return tell, answer, func(s herd.Sum) {
		over(herd.RoundSummary{Round: herd.Round{Number: number, Workers: workers}, Sum: s})
	}
}

func TestARoundIsDrawnAsItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := web.NewView(web.Plan{Workers: 3, Capacity: 10, TTL: time.Second, LockTTL: 10 * time.Second, Runs: []web.Planned{{Mode: "fixed"}}})
		tell, answer, end := round(v, 1, 3)
		time.Sleep(1 * ms)
		for w := 1; w <= 3; w++ {
			tell(w, events.Event{Kind: events.GetMiss})
		}
		time.Sleep(1 * ms)
		tell(2, events.Event{Kind: events.Acquired})
		tell(1, events.Event{Kind: events.Wait})
		tell(3, events.Event{Kind: events.Wait})
		tell(2, events.Event{Kind: events.Call})
		time.Sleep(100 * ms)

		p := look(t, v)
		if p.InFlight != 1 || p.Waiting != 2 || p.Calls != 1 || p.Holder != 2 || *p.Lock != (life{9900 * ms, 10 * time.Second}) || p.Key != nil {
			t.Errorf("in the fill: %+v, lock %v, key %v", p, p.Lock, p.Key)
		}
		if p.Round.Elapsed != 102*ms || p.Round.Calls != 1 || p.Round.Over || p.Round.Rows[0].Worker != 2 || !p.Round.Rows[0].Winner {
			t.Errorf("the round in the fill: %+v", p.Round)
		}
		for worker, want := range map[int]string{1: "GET 0-1 miss, wait for fill 2-102 ...", 2: "GET 0-1 miss, SET NX PX 1-2 acquired, backend call 2-102 ..."} {
			if got := bars(t, p, worker); got != want {
				t.Errorf("worker %d in the fill: %s, want %s", worker, got, want)
			}
		}

		tell(2, events.Event{Kind: events.CallEnded})
		time.Sleep(1 * ms)
		tell(2, events.Event{Kind: events.Set, TTL: time.Second})
		tell(2, events.Event{Kind: events.Released})
		answer(2, cache.Filled)
		time.Sleep(10 * ms)
		tell(1, events.Event{Kind: events.WaitEnded, Found: true})
		answer(1, cache.Waited)
		time.Sleep(10 * ms)
		tell(3, events.Event{Kind: events.WaitEnded, Found: true})
		answer(3, cache.Waited)
		end(herd.Sum{})
		time.Sleep(100 * ms)

		p = look(t, v)
		if p.InFlight != 0 || p.Waiting != 0 || p.Lock != nil || *p.Key != (life{880 * ms, time.Second}) {
			t.Errorf("after the round: %+v, lock %v, key %v", p, p.Lock, p.Key)
		}
		if r := p.Round; !r.Over || r.Elapsed != 123*ms || r.Peak != 1 || r.Rows[1].Worker != 1 || r.Rows[2].Worker != 3 || r.Rows[2].Outcome != "waited" {
			t.Errorf("the round after its end: %+v", r)
		}
		for worker, want := range map[int]string{
			2: "GET 0-1 miss, SET NX PX 1-2 acquired, backend call 2-102, SET 102-103 ended the cycle, DEL 103-103 released",
			3: "GET 0-1 miss, wait for fill 2-123, GET 123-123 hit",
		} {
			if got := bars(t, p, worker); got != want {
				t.Errorf("worker %d at the end: %s, want %s", worker, got, want)
			}
		}
	})
}

// Ten at once here are two: the others queue, and run in the order of their arrival as calls end.
func TestWhatOfACallIsQueueIsToldByTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := web.NewView(web.Plan{Workers: 4, Capacity: 2, Runs: []web.Planned{{Mode: "broken"}}})
		tell, _, _ := round(v, 1, 4)
		for w := 1; w <= 4; w++ {
			tell(w, events.Event{Kind: events.Call})
		}
		time.Sleep(10 * ms)
		if p := look(t, v); p.InFlight != 4 || p.Queued != 2 || bars(t, p, 2) != "backend call 0-10 ..." || bars(t, p, 3) != "backend call 0-10 queued 10 queued ..." {
			t.Errorf("at first: %+v, %s, %s", p, bars(t, p, 2), bars(t, p, 3))
		}
		tell(2, events.Event{Kind: events.CallEnded})
		if rows := look(t, v).Round.Rows; rows[0].Worker != 1 || rows[1].Worker != 3 || rows[2].Worker != 2 || rows[3].Worker != 4 {
			t.Errorf("in this order: %+v", rows) // who runs, who has called and goes on, who queues
		}
		time.Sleep(10 * ms)
		tell(4, events.Event{Kind: events.Failed, Text: events.BackendCall, Err: errors.New("gave up in the queue")})
		tell(1, events.Event{Kind: events.CallEnded})
		p := look(t, v)
		for worker, want := range map[int]string{
			1: "backend call 0-20", 2: "backend call 0-10", 3: "backend call 0-20 queued 10 ...", 4: "backend call 0-20 failed",
		} {
			if got := bars(t, p, worker); got != want {
				t.Errorf("worker %d: %s, want %s", worker, got, want)
			}
		}
		if p.InFlight != 1 || p.Queued != 0 || p.Round.Peak != 4 || p.Calls != 4 {
			t.Errorf("then: %+v, peak %d", p, p.Round.Peak)
		}
	})
}

func TestOfALargeHerdSomeAreDrawnAndWhoeverCallsAmongFew(t *testing.T) {
	v := web.NewView(web.Plan{Workers: 10_000, Capacity: 0, Runs: []web.Planned{{Mode: "woken"}}})
	tell, _, _ := round(v, 1, 10_000)
	tell(9_999, events.Event{Kind: events.Acquired})
	for w := 1; w <= 10_000; w++ {
		tell(w, events.Event{Kind: events.Wait})
	}
	for range 3 { // more changes than are drawn
		for w := 1; w <= 10_000; w++ {
			tell(w, events.Event{Kind: events.Call})
			tell(w, events.Event{Kind: events.CallEnded})
		}
	}
	p := look(t, v)
	// 60 by their number, the winner, and of the callers a few.
	if n := len(p.Round.Rows); n != 65 || p.Round.Rows[0].Worker != 9_999 {
		t.Errorf("%d rows, the first is worker %d", n, p.Round.Rows[0].Worker)
	}
	if p.Waiting != 10_000 || p.Calls != 30_000 || p.Round.Calls != 30_000 || p.Round.Peak != 1 || len(p.Round.InFlight) > 301 {
		t.Errorf("%d wait, %d calls, %d at most in flight, in %d steps", p.Waiting, p.Calls, p.Round.Peak, len(p.Round.InFlight))
	}
}

func TestWhatHasNotChangedIsNotSentAgain(t *testing.T) {
	v := web.NewView(web.Plan{Workers: 1, Runs: []web.Planned{{Mode: "broken"}}})
	tell, _, _ := round(v, 1, 1)
	text, changes := web.Picture(v, -1)
	if text == nil {
		t.Fatal("nothing is sent")
	}
	if again, same := web.Picture(v, changes); again != nil || same != changes {
		t.Errorf("sent again: %s", again)
	}
	tell(1, events.Event{Kind: events.GetMiss})
	if text, _ := web.Picture(v, changes); text == nil {
		t.Error("a step is not sent")
	}
}

func TestAFaultIsToldAndTheKeyIsNotKnownFromThenOn(t *testing.T) {
	v := web.NewView(web.Plan{Workers: 1, TTL: time.Second, Runs: []web.Planned{{Mode: "fixed"}}})
	tell, _, _ := round(v, 2, 1)
	tell(1, events.Event{Kind: events.Set, TTL: time.Second})
	for i := range 7 {
		tell(1, events.Event{Kind: events.Fault, Text: fmt.Sprint("fault ", i)})
	}
	p := look(t, v)
	if len(p.Faults) != 5 || p.Faults[4].Text != "fault 6" || p.Faults[4].Round != 2 || p.Key != nil {
		t.Errorf("the faults are %+v, the key %v", p.Faults, p.Key)
	}
}

// Of traffic the last 30 s are drawn, whatever came before.
func TestTrafficIsDrawnForThirtySeconds(t *testing.T) {
	v := web.NewView(web.Plan{Traffic: true, Runs: []web.Planned{{Mode: "stale"}}})
	began := time.Now()
	response := func(at, took, age time.Duration, calls int, work herd.Work) {
		r := herd.Response{At: began.Add(at + took), Elapsed: took, Answered: began.Add(at + took - age), Work: work}
		r.BackendCalls = calls
		v.Keep(r)
	}
	response(0, 10*ms, 1*ms, 1, "")
	response(100*ms, 300*ms, 2*ms, 0, "")
	response(700*ms, 2*ms, 600*ms, 0, "")
	response(710*ms, 250*ms, 0, 1, herd.Refresh) // in the background: nobody waited for it
	p := look(t, v)
	want := []herd.Step{{At: 0, Calls: 1, Slowest: 300 * ms, Oldest: 2 * ms}, {At: 500 * ms, Calls: 1, Slowest: 2 * ms, Oldest: 600 * ms}}
	if !slices.Equal(p.Series, want) || p.Stretch != 500*ms || p.Round != nil {
		t.Errorf("the series is %+v, want %+v", p.Series, want)
	}
	response(30*time.Second, 5*ms, 1*ms, 0, "") // the first half second is out of sight
	response(0, 9*ms, 1*ms, 5, "")              // too late
	p = look(t, v)
	want = []herd.Step{{At: 0, Calls: 1, Slowest: 2 * ms, Oldest: 600 * ms}, {At: 29500 * ms, Slowest: 5 * ms, Oldest: 1 * ms}}
	if !slices.Equal(p.Series, want) {
		t.Errorf("30 s later the series is %+v, want %+v", p.Series, want)
	}
}
