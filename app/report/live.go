package report

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/herd"
)

// LiveView is the view of a live run: a line for each expiry cycle and each phase, and on a terminal a status line
// below them. Make one with [Terminal.LiveView], and Close it.
type LiveView struct {
	*View

	mu     sync.Mutex // guards all below
	phases int
	phase  phase
}

// phase is the one that goes on, as far as it is seen.
type phase struct {
	mode            string
	started         time.Time
	length          time.Duration // 0 without an end
	calls, expiries int
}

// Live starts a view of a live run. With steps it prints a line for each.
func (t *Terminal) Live(workers int, steps bool) *LiveView {
	return &LiveView{View: newView(t, workers, steps)}
}

func (l *LiveView) now() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase
}

// status is the line that is always there.
func (l *LiveView) status(int) string {
	p := l.now()
	clock := time.Since(p.started).Round(time.Second).String()
	if p.length > 0 {
		clock += " of " + p.length.String()
	}
	return fmt.Sprintf("%s %s · %d waiting · %d in flight · %s", l.terminal.color(p.mode).Render(p.mode), clock, l.waiting.Load(), l.inFlight.Load(),
		herd.Claim(p.calls, p.expiries))
}

// Phase says that a phase begins. It must end before the next begins.
func (l *LiveView) Phase(mode string, length time.Duration) (end func(herd.Phase)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases++
	number := l.phases
	l.show(l.status)
	l.phase = phase{mode: mode, started: time.Now(), length: length}
	return func(p herd.Phase) { l.say(phaseLine(mode, number, p)) }
}

func phaseLine(mode string, number int, p herd.Phase) string {
	return fmt.Sprintf("phase %d, %s: %s, %s, %s", number, mode, seconds(p.Elapsed), count(p.Requests, "request"),
		herd.Claim(p.BackendCalls, p.Expiries))
}

// Tell is an [events.Handler].
func (l *LiveView) Tell(e events.Event) {
	l.mu.Lock()
	switch {
	case e.Kind == events.Call:
		l.phase.calls++
	case e.Kind == events.Set && !e.Over:
		l.phase.expiries++
	}
	l.mu.Unlock()
	l.View.Tell(e)
}

// Observe returns next, with a line for each round of mode in which something was missed.
func (l *LiveView) Observe(mode string, next herd.Observer) herd.Observer {
	return liveObserver{next, l, mode}
}

type liveObserver struct {
	herd.Observer
	view *LiveView
	mode string
}

func (o liveObserver) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	inner, end := o.Observer.Round(ctx, round)
	return inner, func(s herd.RoundSummary) {
		end(s)
		if s.Misses > 0 || s.Outcomes[cache.Failed] > 0 {
			o.view.say(cycleLine(o.mode, s))
		}
	}
}

// cycleLine is what one round of a stream came to.
func cycleLine(mode string, s herd.RoundSummary) string {
	line := fmt.Sprintf("%s %d: %s, %s, %s, %s", mode, s.Number, count(s.Requests, "request"), count(s.BackendCalls, "backend call"),
		count(s.Expiries, "expiry"), seconds(s.Elapsed))
	if failed := s.Outcomes[cache.Failed]; failed > 0 {
		line += ", " + count(failed, "error")
	}
	return line
}
