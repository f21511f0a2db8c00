package web

import (
	"cmp"
	"slices"
	"time"

	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

const (
	// maxRows is how many workers of a round are drawn, evenly chosen by their number.
	maxRows = 60
	// maxLeaders is how many more are drawn, since they called the backend when few had.
	maxLeaders = 5
	// maxLevels is in how many steps the calls in flight are drawn.
	maxLevels = 300
)

// queued is the text of an open call that has not run yet.
const queued = "queued"

// round is a round on its way, in the form in which a recorded one is drawn: see [facts.Waterfall]. It is made of steps, not of
// spans: a waiter's polls are not among them.
type round struct {
	herd.Round
	capacity int
	zero     time.Time // the first worker's start
	rows     map[int]*row
	leaders  int
	calls    int
	peak     int
	levels   []facts.Level
	running  int    // backend calls that have left the queue
	queue    []*row // those that have not, in the order of arrival; nil for a row that is not drawn
	over     bool
}

// row is one worker.
type row struct {
	facts.Row
	Bars     []*bar `json:"bars"`
	last     time.Duration
	call     *bar // open
	wait     *bar // open
	answered bool
}

// bar is a step, or one that goes on.
type bar struct {
	facts.Bar
	Open bool `json:"open,omitempty"`
}

func newRound(r herd.Round, capacity int) *round {
	n := &round{Round: r, capacity: capacity, rows: map[int]*row{}}
	for i := range min(r.Workers, maxRows) {
		n.row(1 + i*r.Workers/min(r.Workers, maxRows))
	}
	return n
}

func (r *round) row(number int) *row {
	r.rows[number] = &row{Row: facts.Row{Worker: number}, Bars: []*bar{}}
	return r.rows[number]
}

func (r *round) at(t time.Time) time.Duration { return max(0, t.Sub(r.zero)) }

func (r *round) begin(w herd.Worker) {
	now := time.Now()
	if r.zero.IsZero() {
		r.zero = now
	}
	if row := r.rows[w.Number]; row != nil {
		row.Start = r.at(now)
		row.last = row.Start
	}
}

func (r *round) answer(a herd.Response) {
	row := r.rows[a.Worker.Number]
	if row == nil || a.Worker.Round != r.Number {
		return
	}
	row.answered, row.Answer = true, r.at(a.At)
	row.Outcome, row.Failed = string(a.Outcome), a.Outcome == cache.Failed
	row.Polls = a.Polls
}

// flight notes how many calls are in flight from now on.
func (r *round) flight(now time.Time, n int) {
	r.peak = max(r.peak, n)
	r.levels = append(r.levels, facts.Level{At: r.at(now), N: n})
}

// tell adds a step.
func (r *round) tell(now time.Time, e events.Event) {
	row, at := r.rows[e.Worker.Number], r.at(now)
	if row == nil && (e.Kind == events.Acquired || e.Kind == events.Call) && r.leaders < maxLeaders && e.Worker.Number > 0 {
		r.leaders++
		row = r.row(e.Worker.Number)
		row.last = at
	}
	switch {
	case e.Kind == events.Call:
		r.calls++
		r.call(row, at)
	case e.Kind == events.CallEnded, e.Kind == events.Failed && e.Text == events.BackendCall:
		r.called(row, at, e.Kind == events.Failed)
	}
	if row != nil {
		row.tell(at, e)
	}
}

// call lets a call run, or queue. The backend serves in the order of arrival: so its capacity tells which of them run.
func (r *round) call(row *row, at time.Duration) {
	if row != nil {
		row.call = row.open(telemetry.SpanBackendCall, at)
	}
	if r.capacity == 0 || r.running < r.capacity {
		r.running++
		return
	}
	r.queue = append(r.queue, row)
	if row != nil {
		row.call.Text = queued
	}
}

// called ends a call; the next in the queue runs.
func (r *round) called(row *row, at time.Duration, failed bool) {
	if row != nil && row.call != nil {
		row.call.close(at)
		row.call.Text = ""
		if failed {
			row.call.Text = "failed"
		}
		row.call = nil
	}
	if n := slices.Index(r.queue, row); row != nil && n >= 0 { // it left the queue, and had not run
		r.queue = slices.Delete(r.queue, n, n+1)
		return
	}
	if len(r.queue) == 0 {
		r.running--
		return
	}
	next := r.queue[0]
	r.queue = r.queue[1:]
	if next != nil && next.call != nil {
		next.call.Queued, next.call.Text = at-next.call.Start, ""
	}
}

// tell adds what one worker did.
func (r *row) tell(at time.Duration, e events.Event) {
	switch e.Kind {
	case events.GetHit, events.RecheckHit:
		r.add(telemetry.SpanGet, at, "hit")
	case events.GetMiss, events.RecheckMiss:
		r.add(telemetry.SpanGet, at, "miss")
	case events.Acquired:
		r.add(telemetry.SpanLock, at, "acquired")
		r.Winner = true
	case events.Wait:
		r.wait = r.open(telemetry.SpanWait, at)
	case events.WaitEnded, events.Landed:
		if r.wait != nil {
			r.wait.close(at)
			r.wait = nil
		}
		if e.Found {
			r.last = at
			r.add(telemetry.SpanGet, at, "hit")
		}
	case events.Set:
		text := "ended the cycle"
		if e.Over {
			text = "over a value that was there"
		}
		r.add(telemetry.SpanSet, at, text)
	case events.Late:
		r.add(telemetry.SpanSet, at, "late: a newer value is there")
	case events.Released:
		r.add(telemetry.SpanDel, at, "released")
	case events.Lost:
		r.add(telemetry.SpanDel, at, "no longer ours")
	case events.Failed:
		if e.Text != events.BackendCall {
			r.add(e.Text, at, "failed")
		}
	}
	r.last = at
}

// add adds a step that is over: it began with the end of the one before.
func (r *row) add(kind string, at time.Duration, text string) {
	r.Bars = append(r.Bars, &bar{Bar: facts.Bar{Kind: kind, Start: r.last, End: at, Text: text}})
}

func (r *row) open(kind string, at time.Duration) *bar {
	one := &bar{Bar: facts.Bar{Kind: kind, Start: at, End: at}, Open: true}
	r.Bars = append(r.Bars, one)
	return one
}

func (b *bar) close(at time.Duration) { b.End, b.Open = at, false }

// drawn is a round as the page draws it: a [facts.Waterfall] whose bars may be open.
type drawn struct {
	facts.Waterfall
	Rows []drawnRow `json:"rows"`
	Live bool       `json:"live"`
	Over bool       `json:"over"`
}

type drawnRow struct {
	facts.Row
	Bars []bar `json:"bars"`
}

// draw is a copy of the round as it is now.
func (r *round) draw(now time.Time) *drawn {
	d := &drawn{Live: true, Over: r.over, Rows: []drawnRow{}}
	d.Number, d.Workers, d.Calls, d.Peak = r.Number, r.Workers, r.calls, r.peak
	if r.zero.IsZero() {
		d.InFlight = []facts.Level{}
	} else {
		d.Elapsed = r.at(now)
		if r.over {
			d.Elapsed = r.last()
		}
		n := 0
		if last := len(r.levels) - 1; last >= 0 {
			n = r.levels[last].N
		}
		d.InFlight = append(slices.Clone(r.levels), facts.Level{At: d.Elapsed, N: n})
		d.InFlight = d.Coarse(maxLevels)
	}
	rows := make([]*row, 0, len(r.rows))
	for _, one := range r.rows {
		rows = append(rows, one)
	}
	slices.SortFunc(rows, order)
	for _, one := range rows {
		copied := drawnRow{Row: one.Row}
		for _, b := range one.Bars {
			b := *b
			if b.Open {
				b.End = max(b.Start, d.Elapsed)
				if b.Text == queued {
					b.Queued = b.End - b.Start
				}
			}
			copied.Bars = append(copied.Bars, b)
		}
		d.Rows = append(d.Rows, copied)
	}
	return d
}

// last is the end of the last thing that was seen.
func (r *round) last() (last time.Duration) {
	for _, one := range r.rows {
		last = max(last, one.Answer, one.last)
	}
	if n := len(r.levels); n > 0 {
		last = max(last, r.levels[n-1].At)
	}
	return last
}

// order puts winners first, then who was answered in the order of the answers, then who goes on: a call that runs before one that
// queues.
func order(x, y *row) int {
	first := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	return cmp.Or(first(x.Winner, y.Winner), first(x.answered, y.answered), cmp.Compare(x.Answer, y.Answer),
		cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.Start, y.Start), cmp.Compare(x.Worker, y.Worker))
}

// rank is how far a worker without an answer has come.
func (r *row) rank() int {
	switch {
	case r.call != nil && r.call.Text != queued:
		return 0
	case r.call == nil && len(r.Bars) > 0:
		return 1
	case r.call != nil:
		return 2
	}
	return 3
}
