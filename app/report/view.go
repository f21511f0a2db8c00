package report

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"charm.land/lipgloss/v2"

	"cachelab/app/events"
	"cachelab/app/herd"
)

// View shows a run while it goes: a line per step and per round, and on a terminal a live line below them.
// Make one with [Terminal.View], and Close it. It waits for nobody who reads it.
type View struct {
	terminal *Terminal
	mode     string
	rounds   int
	digits   int
	steps    bool

	over, waiting, inFlight, calls atomic.Int64
}

const barWidth = 16

// View starts a view of a run. With steps it prints a line for each.
func (t *Terminal) View(mode string, workers, rounds int, steps bool) *View {
	v := newView(t, workers, steps)
	v.mode, v.rounds = mode, rounds
	v.show(v.status)
	return v
}

func newView(t *Terminal, workers int, steps bool) *View {
	return &View{terminal: t, digits: max(2, len(strconv.Itoa(workers))), steps: steps}
}

// show draws a status line where there can be one.
func (v *View) show(status func(width int) string) {
	if v.terminal.live {
		v.terminal.show(status)
	}
}

// status is the live line: within 80 columns, and without its bar in fewer.
func (v *View) status(width int) string {
	over := int(v.over.Load())
	text := fmt.Sprintf("%d/%d rounds · %d waiting · %d in flight · %s so far", over, v.rounds,
		v.waiting.Load(), v.inFlight.Load(), count(int(v.calls.Load()), "call"))
	full := barWidth * over / v.rounds
	if line := fmt.Sprintf("%s %s%s %s", v.mode, strings.Repeat("━", full), strings.Repeat("─", barWidth-full), text); lipgloss.Width(line) < width {
		return line
	}
	return v.mode + " " + text
}

// say prints a line.
func (v *View) say(line string) { v.terminal.println(line) }

// Tell is an [events.Handler].
func (v *View) Tell(e events.Event) {
	switch e.Kind {
	case events.Wait:
		v.waiting.Add(1)
	case events.WaitEnded, events.Landed:
		v.waiting.Add(-1)
	case events.Call:
		v.inFlight.Add(1)
		v.calls.Add(1)
	case events.CallEnded:
		v.inFlight.Add(-1)
	case events.Failed:
		if e.Text == events.BackendCall {
			v.inFlight.Add(-1)
		}
	}
	if v.steps {
		v.terminal.step(func() string { return eventLine(e, v.digits) + "\n" })
	}
}

// Observe returns next, with a line for each round.
func (v *View) Observe(next herd.Observer) herd.Observer { return observer{next, v} }

type observer struct {
	herd.Observer
	view *View
}

func (o observer) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	inner, end := o.Observer.Round(ctx, round)
	return inner, func(s herd.RoundSummary) {
		end(s)
		o.view.over.Add(1)
		o.view.say(roundLine(s, o.view.rounds))
	}
}

// Close removes the live line.
func (v *View) Close() { v.show(nil) }
