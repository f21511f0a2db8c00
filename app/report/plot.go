package report

import (
	"fmt"
	"strings"
	"time"

	"cachelab/telemetry"
)

// Sizes of the pictures of the page, in pixels. Across, everything is a share of the width, so that a phone and a
// wide screen get the same picture.
const (
	pageRows   = 60 // workers in a waterfall
	rowHeight  = 12
	barHeight  = 8
	lookHeight = 5 // of a command that found nothing
	waitHeight = 3
	topMargin  = 18 // for the axis
	callHeight = 64 // of the plot of calls in flight
	binHeight  = 72 // of the plot of latencies
	maxSteps   = 400
)

// percent is a share of the width, as SVG takes it.
type percent float64

func (p percent) String() string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", float64(p)), "0"), ".") + "%"
}

func (s scale) percent(d time.Duration) percent { return percent(100 * float64(d) / float64(s.total)) }

// waterfallView is a round as SVG: the waterfall and, over the same time, the calls in flight.
type waterfallView struct {
	Round
	Height   int
	Zoom     float64 // from the common scale to one's own
	Axis     []mark  // on the common scale
	OwnAxis  []mark
	Lines    []rowView
	Flight   []rect
	Done     *done
	Kinds    []kind
	LeftOut  string
	CallText string // the plot of calls in words
}

// mark is a line of the time axis.
type mark struct {
	X    percent
	Text string
}

// rect is a rectangle; class says its colour.
type rect struct {
	Class     string
	X, Width  percent
	Y, Height float64
}

// rowView is one worker.
type rowView struct {
	Row
	Number int // of the row, from 0
	Y      int
	Rects  []rect
	Ties   []tie
	Text   string
	Call   string // the backend call in words
}

// tie is the line from a waiter up to the winner, at the time when the winner's call returned.
type tie struct {
	X        percent
	From, To int // pixels from the top
}

// done is the time that is left on the common scale when everybody has an answer.
type done struct {
	X, Width, Middle percent
	Height           int
	Text             string
}

// kind is an entry of the legend.
type kind struct{ Class, Text string }

func newWaterfallView(r Round, s scale) *waterfallView {
	own := scale{total: r.Elapsed, peak: r.Peak}
	rows := r.sample(pageRows)
	v := &waterfallView{
		Round: r, Zoom: float64(s.total) / float64(r.Elapsed), Height: topMargin + len(rows)*rowHeight,
		Axis: s.axis(), OwnAxis: own.axis(), LeftOut: r.leftOut(len(rows)),
	}
	if rest := s.total - r.Elapsed; rest > s.total/4 {
		x, width := s.percent(r.Elapsed), s.percent(rest)
		v.Done = &done{x, width, x + width/2, len(rows) * rowHeight, fmt.Sprintf("done, %s sooner", durationText(rest))}
	}
	at := map[int]int{} // the row of each worker
	for i, row := range rows {
		at[row.Worker] = i
	}
	used := map[string]bool{}
	for i, row := range rows {
		line := rowView{Row: row, Number: i, Y: topMargin + i*rowHeight, Text: rowText(row)}
		for _, bar := range row.Bars {
			for _, rect := range s.rects(bar, line.Y) {
				line.Rects = append(line.Rects, rect)
				used[rect.Class] = true
			}
			if bar.Kind == telemetry.SpanBackendCall {
				line.Call = callText(bar)
			}
		}
		for _, winner := range row.WaitsFor {
			if w, ok := at[winner]; ok {
				line.Ties = append(line.Ties, tie{X: s.percent(filledAt(rows[w])), From: topMargin + w*rowHeight + rowHeight/2, To: line.Y + rowHeight/2})
			}
		}
		v.Lines = append(v.Lines, line)
	}
	for _, k := range kinds() {
		if used[k.Class] {
			v.Kinds = append(v.Kinds, k)
		}
	}
	v.Flight, v.CallText = s.calls(r)
	return v
}

// kinds are the classes of spans, in the order of the legend.
func kinds() []kind {
	return []kind{
		{"call", "backend call"}, {"queued", "queued for it"}, {"wait", "wait for fill"}, {"get", "GET, a miss"},
		{"get hit", "GET, a hit"}, {"lock", "SET NX PX"}, {"lock won", "SET NX PX, acquired"}, {"set", "SET"}, {"del", "DEL"},
	}
}

func (s scale) axis() (marks []mark) {
	for at := time.Duration(0); at <= s.total; at += s.tick(7) {
		marks = append(marks, mark{s.percent(at), axisText(at)})
	}
	return marks
}

// rects draws one span.
func (s scale) rects(b Bar, y int) []rect {
	draw := func(class string, from, to time.Duration, height float64) rect {
		return rect{Class: class, X: s.percent(from), Width: s.percent(to - from), Y: float64(y) + (rowHeight-height)/2, Height: height}
	}
	switch b.Kind {
	case telemetry.SpanBackendCall:
		running := draw("call", b.Start+b.Queued, b.End, barHeight)
		if b.Queued < time.Millisecond { // it did not queue: the time to find that out
			return []rect{draw("call", b.Start, b.End, barHeight)}
		}
		return []rect{draw("queued", b.Start, b.Start+b.Queued, barHeight), running}
	case telemetry.SpanWait:
		return []rect{draw("wait", b.Start, b.End, waitHeight)}
	}
	class := map[string]string{telemetry.SpanGet: "get", telemetry.SpanLock: "lock", telemetry.SpanSet: "set", telemetry.SpanDel: "del"}[b.Kind]
	height := float64(barHeight)
	switch b.Text {
	case "hit":
		class += " hit"
	case "acquired":
		class += " won"
	case "miss", "held by another":
		height = lookHeight
	}
	return []rect{draw(class, b.Start, b.End, height)}
}

// filledAt is when the winner's fill was over: its SET, or its call if there was none.
func filledAt(winner Row) (at time.Duration) {
	for _, bar := range winner.Bars {
		if bar.Kind == telemetry.SpanBackendCall || bar.Kind == telemetry.SpanSet {
			at = bar.End
		}
	}
	return at
}

// calls draws the backend calls in flight. Of many changes it shows the most in each of maxSteps stretches of time.
func (s scale) calls(r Round) (rects []rect, text string) {
	steps := r.InFlight
	if len(steps) > maxSteps {
		steps = s.coarse(steps)
	}
	for i, step := range steps {
		if step.N == 0 || i+1 == len(steps) {
			continue
		}
		height := callHeight * float64(step.N) / float64(s.peak)
		rects = append(rects, rect{Class: "flight", X: s.percent(step.At), Width: s.percent(steps[i+1].At - step.At), Y: callHeight - height, Height: height})
	}
	text = "no backend call"
	if last := len(r.InFlight) - 1; last > 0 {
		text = fmt.Sprintf("at most %d in flight; the first began at %s, the last ended at %s", r.Peak,
			durationText(r.InFlight[0].At), durationText(r.InFlight[last].At))
	}
	return rects, text
}

func (s scale) coarse(steps []Step) []Step {
	width := s.total/maxSteps + 1
	var coarse []Step
	last := 0 // in flight at the end of the stretch before
	for i, at := 0, time.Duration(0); i < len(steps); at += width {
		most := last
		for ; i < len(steps) && steps[i].At < at+width; i++ {
			last = steps[i].N
			most = max(most, last)
		}
		coarse = append(coarse, Step{at, most})
	}
	return append(coarse, Step{coarse[len(coarse)-1].At + width, 0})
}

// rowText is one worker in words.
func rowText(r Row) string {
	text := fmt.Sprintf("worker %d: %s", r.Worker, r.Outcome)
	switch {
	case r.Winner:
		text = fmt.Sprintf("worker %d: won the fill lock and filled", r.Worker)
	case len(r.WaitsFor) > 0:
		var names []string
		for _, winner := range r.WaitsFor {
			name := fmt.Sprintf("worker %d", winner)
			if winner == 0 {
				name = "a worker that is not recorded"
			}
			names = append(names, name)
		}
		text += fmt.Sprintf(" for %s, %s", strings.Join(names, " and "), count(r.Polls, "poll"))
	}
	for _, bar := range r.Bars {
		if bar.Kind == telemetry.SpanBackendCall {
			text += ", backend call of " + callText(bar)
		}
	}
	return fmt.Sprintf("%s; answered after %s", text, durationText(r.Answer))
}

func callText(b Bar) string {
	text := durationText(b.End - b.Start)
	if b.Queued >= time.Millisecond {
		text += fmt.Sprintf(", %s of it in the queue", durationText(b.Queued))
	}
	if b.Text != "" {
		text += ", " + b.Text
	}
	return text
}
