package lab_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/herd"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// seen is a watcher that counts.
type seen struct {
	mode string

	mu      sync.Mutex // guards all below
	calls   int
	rounds  int
	workers int
	sum     herd.Sum
	kept    int
}

func (s *seen) Tell(e events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind == events.Call {
		s.calls++
	}
}

func (s *seen) Observe(next herd.Observer) herd.Observer { return seenObserver{next, s} }

func (s *seen) Keep(herd.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
}

type seenObserver struct {
	herd.Observer
	seen *seen
}

func (o seenObserver) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	inner, end := o.Observer.Round(ctx, round)
	return inner, func(summary herd.RoundSummary) {
		end(summary)
		o.seen.mu.Lock()
		defer o.seen.mu.Unlock()
		o.seen.rounds++
		o.seen.sum.Add(summary.Sum)
	}
}

func (o seenObserver) Worker(ctx context.Context, worker herd.Worker) (context.Context, func(*herd.Response)) {
	o.seen.mu.Lock()
	defer o.seen.mu.Unlock()
	o.seen.workers++
	return o.Observer.Worker(ctx, worker)
}

// Whoever watches is told of as much as the ledger counts, in rounds and in traffic.
func TestAWatcherIsToldOfAllThatIsCounted(t *testing.T) {
	var all []*seen
	c := config(t, "embedded")
	c.Workers, c.TTL, c.Backend.Latency = 20, 300*time.Millisecond, 20*time.Millisecond
	c.Watch = func(mode string) lab.Watcher {
		all = append(all, &seen{mode: mode})
		return all[len(all)-1]
	}
	terminal := report.PlainTerminal(&strings.Builder{})
	l, err := lab.Open(t.Context(), c, terminal)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	table := modes.All()
	broken, _ := table.Find("broken")
	fixed, _ := table.Find("fixed")
	one, err := l.Run(t.Context(), lab.Plan{Mode: broken, Scenario: modes.Rounds})
	if err != nil {
		t.Fatal(err)
	}
	both, err := l.Live(t.Context(), lab.LivePlan{Scenario: modes.Gallery, Modes: []modes.Mode{fixed, broken}, Each: time.Second, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	runs := slices.Insert(both, 0, one)
	if len(all) != len(runs) {
		t.Fatalf("%d were watched of %d", len(all), len(runs))
	}
	for i, run := range runs {
		got := all[i]
		if got.mode != run.Mode || got.calls != run.BackendCalls || got.rounds != run.Rounds || got.workers != run.Requests || got.kept != run.Requests {
			t.Errorf("%s: seen were %d calls, %d rounds, %d workers, %d responses; the ledger has %d, %d and %d requests",
				got.mode, got.calls, got.rounds, got.workers, got.kept, run.BackendCalls, run.Rounds, run.Requests)
		}
		if got.sum.BackendCalls != run.BackendCalls || got.sum.Expiries != run.Expiries || got.sum.Outcomes[cache.Waited] != run.Outcomes[cache.Waited] {
			t.Errorf("%s: the rounds add up to %+v", got.mode, got.sum)
		}
	}
	if runs[0].BackendCalls == 0 || runs[1].BackendCalls == 0 {
		t.Error("nobody called the backend")
	}
}
