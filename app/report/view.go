package report

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/cupwriter"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"cachelab/app/events"
	"cachelab/app/herd"
)

// View shows a run while it goes: a line per step and per round, and on a terminal a live line below them.
// Make one with [Terminal.View]; Close it before anything else is printed.
type View struct {
	rounds int
	digits int
	steps  bool
	lines  chan string
	gone   <-chan struct{} // closed when the run is interrupted
	done   sync.WaitGroup

	progress *mpb.Progress // nil when not on a terminal
	bar      *mpb.Bar

	waiting, inFlight, calls atomic.Int64
}

// lineBuffer is how many lines may wait for a slow terminal before the workers do.
const lineBuffer = 4096

// The live line: often enough to see a fill of 250 ms, and within 80 columns.
const (
	refreshEvery = 60 * time.Millisecond
	barWidth     = 16
)

// View starts a view of a run. With steps it prints a line for each. When ctx ends, a terminal that takes no more lines
// holds nobody up any longer.
func (t *Terminal) View(ctx context.Context, mode string, workers, rounds int, steps bool) *View {
	v := newView(ctx, workers, rounds, steps)
	if t.live != nil {
		v.progress = t.progress()
		v.bar = v.progress.New(int64(rounds), mpb.BarStyle().Lbound("").Filler("━").Tip("╸").Padding("─").Rbound(""),
			mpb.BarWidth(barWidth), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(mode+" ")),
			mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return v.status(s.Current) })))
	}
	v.start(t.out)
	return v
}

// progress draws live lines in place. Its output wraps the terminal, so it must be told which one that is.
func (t *Terminal) progress() *mpb.Progress {
	screen := cupwriter.New(atLineStart{t.live}, false)
	screen.SetTermFd(int(t.live.Fd()))
	return mpb.New(mpb.WithConsoleWriter(screen), mpb.WithRefreshRate(refreshEvery))
}

func newView(ctx context.Context, workers, rounds int, steps bool) *View {
	return &View{
		rounds: rounds,
		digits: max(2, len(strconv.Itoa(workers))),
		steps:  steps,
		lines:  make(chan string, lineBuffer),
		gone:   ctx.Done(),
	}
}

// start starts to print, above the live line if there is one.
func (v *View) start(out io.Writer) {
	if v.progress != nil {
		out = v.progress
	}
	v.done.Go(func() { v.print(out) })
}

// atLineStart writes each frame from the first column on, wherever the terminal's echo of ^C has left the cursor.
type atLineStart struct{ *os.File }

func (f atLineStart) Write(frame []byte) (int, error) {
	n, err := f.File.Write(append([]byte{'\r'}, frame...))
	return max(0, n-1), err
}

func (v *View) status(round int64) string {
	return fmt.Sprintf(" %d/%d rounds · %d waiting · %d in flight · %s so far", round, v.rounds,
		v.waiting.Load(), v.inFlight.Load(), count(int(v.calls.Load()), "call"))
}

// print writes the lines as they come, and flushes whenever there is none.
func (v *View) print(out io.Writer) {
	w := bufio.NewWriter(out)
	for line := range v.lines {
		fmt.Fprintln(w, line)
		if len(v.lines) == 0 {
			w.Flush()
		}
	}
	w.Flush()
}

// say prints a line in its turn.
func (v *View) say(line string) {
	select {
	case v.lines <- line:
	case <-v.gone:
		select { // there may be room all the same
		case v.lines <- line:
		default:
		}
	}
}

// Tell is an [events.Teller].
func (v *View) Tell(e events.Event) {
	switch e.Step {
	case events.Wait:
		v.waiting.Add(1)
	case events.WaitEnded:
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
		v.say(eventLine(e, v.digits))
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
		o.view.say(roundLine(s, o.view.rounds))
		if o.view.bar != nil {
			o.view.bar.Increment()
		}
	}
}

// Close prints what is left and removes the live line.
func (v *View) Close() {
	close(v.lines)
	v.done.Wait()
	if v.progress != nil {
		v.bar.Abort(true)
		v.progress.Wait()
	}
}
