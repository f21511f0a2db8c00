package web

import (
	"context"
	"sync"
	"time"

	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
)

// View is one run as visitors see it while it goes on: what is in flight, the key and its lock, and the round or the traffic
// of the moment. It is told by the run's own steps, and asks Redis nothing. Whoever tells it waits for nobody who looks.
type View struct {
	plan  *Plan
	index int // in the plan
	moved func()

	mu                       sync.Mutex // guards all below
	changes                  int        // so that nothing is sent twice
	started                  bool
	inFlight, waiting, calls int
	key, lock                term
	holder                   int // the worker that holds the lock
	faults                   []fault
	round                    *round // of the moment, or the last; nil before the first, and in traffic
	traffic                  *traffic

	sum    herd.Sum // of the rounds that are over
	rounds int
}

// term is how long something lives: the cached value, or the fill lock.
type term struct {
	from   time.Time // zero if there is none
	length time.Duration
}

// fault is what a drill did.
type fault struct {
	Round int    `json:"round"`
	Text  string `json:"text"`
}

// maxFaults is how many of them are shown: the newest.
const maxFaults = 5

func newView(plan *Plan, index int, moved func()) *View {
	v := &View{plan: plan, index: index, moved: moved}
	if plan.Traffic {
		v.traffic = &traffic{}
	}
	return v
}

// Tell is told of each step.
func (v *View) Tell(e events.Event) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes++
	switch e.Kind {
	case events.Wait:
		v.waiting++
	case events.WaitEnded, events.Landed:
		v.waiting--
	case events.Call:
		v.calls++
		v.flight(now, +1)
	case events.CallEnded:
		v.flight(now, -1)
	case events.Failed:
		if e.Text == events.BackendCall {
			v.flight(now, -1)
		}
	case events.Set:
		v.key = term{now, e.TTL}
	case events.Acquired:
		v.lock, v.holder = term{now, v.plan.LockTTL}, e.Worker.Number
	case events.Released, events.Lost:
		if v.holder == e.Worker.Number {
			v.lock = term{}
		}
	case events.Fault:
		v.key = term{} // a drill may have deleted it
		v.faults = append(v.faults, fault{e.Worker.Round, e.Text})
		v.faults = v.faults[max(0, len(v.faults)-maxFaults):]
	}
	if v.round != nil {
		v.round.tell(now, e)
	}
}

func (v *View) flight(now time.Time, by int) {
	v.inFlight += by
	if v.round != nil {
		v.round.flight(now, v.inFlight)
	}
}

// Observe returns next, and watches the rounds and workers.
func (v *View) Observe(next herd.Observer) herd.Observer { return viewer{next, v} }

type viewer struct {
	herd.Observer
	view *View
}

func (o viewer) Round(ctx context.Context, r herd.Round) (context.Context, func(herd.RoundSummary)) {
	v := o.view
	v.mu.Lock()
	begins := !v.started
	v.started = true
	if v.traffic == nil && v.plan.Processes == 0 {
		v.round = newRound(r, v.plan.Capacity)
	}
	v.changes++
	v.mu.Unlock()
	if begins {
		v.moved()
	}
	inner, end := o.Observer.Round(ctx, r)
	return inner, func(s herd.RoundSummary) {
		end(s)
		v.mu.Lock()
		v.rounds++
		v.sum.Add(s.Sum)
		v.changes++
		if v.round != nil {
			v.round.over = true
		}
		v.mu.Unlock()
		v.moved()
	}
}

func (o viewer) Worker(ctx context.Context, w herd.Worker) (context.Context, func(*herd.Response)) {
	v := o.view
	inner, end := o.Observer.Worker(ctx, w)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.round == nil {
		return inner, end
	}
	v.round.begin(w)
	return inner, func(r *herd.Response) {
		end(r)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.round.answer(*r)
		v.changes++
	}
}

// Keep is given each response.
func (v *View) Keep(r herd.Response) {
	if v.traffic == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes++
	v.traffic.add(r)
}

// facts are the run's so far: what the rounds that are over came to. Times, Redis's counts and the verdict come at the end.
func (v *View) facts() (so facts.Run, started bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ledger := herd.Ledger{Workers: v.plan.Workers, Rounds: v.rounds, Sum: v.sum}
	return facts.NewRun(ledger, facts.Details{Mode: v.plan.Runs[v.index].Mode}), v.started
}

// picture is a view at a moment. Times are nanoseconds.
type picture struct {
	Run      int         `json:"run"` // its place among the runs of the show
	InFlight int         `json:"in_flight"`
	Queued   int         `json:"queued"` // of those in flight, as the backend's capacity says
	Waiting  int         `json:"waiting"`
	Calls    int         `json:"calls"`
	Key      *life       `json:"key"` // nil if it is not known
	Lock     *life       `json:"lock"`
	Holder   int         `json:"holder"`
	Faults   []fault     `json:"faults"`
	Round    *drawn      `json:"round,omitempty"`
	Series   []herd.Step `json:"series,omitempty"`
	Stretch  int64       `json:"stretch_ns,omitempty"`
	Window   int64       `json:"window_ns,omitempty"`
}

// life is what is left of a term.
type life struct {
	Left   time.Duration `json:"left_ns"`
	Length time.Duration `json:"length_ns"`
}

func (t term) left(now time.Time) *life {
	if t.from.IsZero() {
		return nil
	}
	return &life{Left: max(0, t.length-now.Sub(t.from)), Length: t.length}
}

// picture returns the view if it has changed since it had as many changes, and how many it has.
func (v *View) picture(since int) (*picture, int) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changes == since {
		return nil, since
	}
	p := &picture{Run: v.index, InFlight: v.inFlight, Waiting: v.waiting, Calls: v.calls, Holder: v.holder,
		Key: v.key.left(now), Lock: v.lock.left(now), Faults: v.faults}
	if capacity := v.plan.Capacity; capacity > 0 {
		p.Queued = max(0, v.inFlight-capacity)
	}
	if v.round != nil {
		p.Round = v.round.draw(now)
	}
	if v.traffic != nil {
		p.Series, p.Stretch, p.Window = v.traffic.steps(), int64(stretch), int64(window)
	}
	return p, v.changes
}
