package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"cachelab/app/backend"
	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/report"
	"cachelab/app/results"
)

// LivePlan is the plan of a live run: workers that read on their own, in one mode after the other.
type LivePlan struct {
	Scenario modes.Scenario // Live; in the Gallery each mode has one phase, from a cold key
	Modes    []modes.Mode   // in turn; a single one goes on without phases
	Each     time.Duration  // of a phase
	For      time.Duration  // of the run; 0: until it is interrupted
	Think    time.Duration  // of a worker between two requests, on average
	Rate     float64        // if more than 0: of open traffic, requests a second, by the backend's seed
	Drill    *drill.Drill   // what is made to fail, and who judges; nil for none
}

// Live runs until ctx ends or plan.For has passed, and prints what each mode came to. Both are the run's proper end
// and no error; whoever asked gets an answer first. The runs it returns have one id and differ in their mode; a mode
// without a single request is left out. A gallery or a drill that does not come to its end is an error.
func (l *Lab) Live(ctx context.Context, plan LivePlan) (runs []facts.Run, err error) {
	id := l.newRunID(plan.Scenario, time.Now())
	if err := l.takeOwnRedis(ctx, plan.Drill); err != nil {
		return nil, err
	}
	locks := slices.ContainsFunc(plan.Modes, func(m modes.Mode) bool { return m.Locks })
	if err := l.ready(ctx, id, plan.Modes...); err != nil {
		return nil, err
	}
	l.terminal.Notice(l.settings(string(plan.Scenario), plan.String(l.config.who()), locks, id))
	var all []*traffic
	for i, mode := range plan.Modes {
		s, err := l.openSession(ctx, mode, plan.Scenario, id, i == 0)
		if err != nil {
			return nil, errors.Join(err, closeAll(ctx, all))
		}
		all = append(all, &traffic{session: s})
	}
	l.terminal.Notice(all[0].telemetry.Notice)
	err = errors.Join(l.flow(ctx, plan, all), closeAll(ctx, all))

	runs = []facts.Run{}
	for _, t := range all {
		if t.ledger.Requests > 0 {
			runs = append(runs, t.result(t.ledger))
		}
	}
	return runs, err
}

// String says who asks, and in which mode.
func (p LivePlan) String(workers string) string {
	var names []string
	for _, mode := range p.Modes {
		names = append(names, mode.Name)
	}
	text := modes.And(names)
	if len(p.Modes) > 1 {
		text = fmt.Sprintf("%s in turn, %v each", text, p.Each)
	}
	if p.Rate > 0 {
		return fmt.Sprintf("%s, %.4g requests a second of %s", text, p.Rate, workers)
	}
	return fmt.Sprintf("%s, %s with %v of think time", text, workers, p.Think)
}

// traffic is one mode of a live run.
type traffic struct {
	*session
	faults drill.Faults
	flow   func(ctx context.Context, length time.Duration) (herd.Phase, error)
	total  func() herd.Ledger // so far
	ledger herd.Ledger
}

// closeAll closes sessions at the same time, so that a receiver that has stopped answering costs no more than once.
func closeAll(ctx context.Context, all []*traffic) error {
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, t := range all {
		closing.Go(func() { errs[i] = t.close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// flow lets the streams flow in turn, until ctx ends or the plan's time has passed; in the gallery, each once.
func (l *Lab) flow(ctx context.Context, plan LivePlan, all []*traffic) (err error) {
	view := l.terminal.Live(l.config.Workers, !l.config.Quiet)
	defer view.Close()
	var others *processes
	var sessions []*session
	if l.splits() {
		for _, t := range all {
			sessions = append(sessions, t.session)
		}
		if others, err = l.gatherProcesses(ctx, sessions...); err != nil {
			return err
		}
		defer others.close()
	}
	for _, t := range all {
		t.facts.Rate = plan.Rate
		t.faults = t.session.faults(plan.Drill, herd.JudgeStream(t.mode.Judge), t.watched(view.Tell))
		defer func() { err = errors.Join(err, t.faults.Close()) }()
		if others != nil {
			t.join(plan, others)
		} else {
			t.stream(plan, view)
		}
		t.bridge.Pause()
		t.telemetry.Push(ctx) // the zeros, before the first increment
	}

	if plan.Scenario == modes.Gallery {
		err = once(ctx, plan.Each, all, view)
	} else {
		err = alternate(ctx, plan, all, view)
	}
	lost := err != nil && ctx.Err() == nil
	if others != nil {
		err = errors.Join(err, others.end(ctx))
		others.joiners.connected(sessions...)
	}
	for _, t := range all {
		t.ledger = t.total()
		verdict := t.faults.Judge(t.ledger)
		if plan.Drill != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
			verdict, t.facts.Err = unfinished(t.ledger), err
		}
		if others != nil {
			t.facts.Processes = others.facts(t.mode.Name)
		}
		if lost {
			verdict.OK, verdict.Text, t.facts.Err = false, verdict.Text+"; and the run did not come to its end", err
		}
		t.finish(ctx, t.ledger, verdict)
		t.masked = t.faults.Masked()
	}
	return err
}

// stream is the traffic of this process's workers.
func (t *traffic) stream(plan LivePlan, view *report.LiveView) {
	s := &herd.Stream{
		Strategy: t.strategy(t.watched(view.Tell), t.faults),
		Key:      t.config.Key,
		Workers:  t.config.Workers,
		Think:    plan.Think,
		Rate:     plan.Rate,
		Seed:     t.config.Backend.Seed,
		Patience: t.config.patience(),
		Observer: t.watcher.Observe(t.bridge.Observer(herd.NoObserver{})),
		Results:  t.keepSeries(plan, t.results(results.This(0))),
	}
	if plan.Scenario != modes.Gallery {
		s.Observer = view.Observe(t.mode.Name, s.Observer)
	}
	t.flow = func(ctx context.Context, length time.Duration) (herd.Phase, error) { return s.Flow(ctx, length), nil }
	t.total = s.Ledger
}

// join makes the traffic of the workers of other processes.
func (t *traffic) join(plan LivePlan, others *processes) {
	s := &herd.Streams{Workers: t.config.allWorkers(), Results: t.keepSeries(plan, t.results(others.about()...))}
	for _, r := range others.all {
		s.Sources = append(s.Sources, source{r, t.session, plan})
	}
	t.flow, t.total = s.Flow, s.Ledger
}

// alternate goes from mode to mode, again and again.
func alternate(ctx context.Context, plan LivePlan, all []*traffic, view *report.LiveView) error {
	flowing, stop := context.WithCancel(ctx)
	defer stop()
	if plan.For > 0 {
		flowing, stop = context.WithTimeout(ctx, plan.For)
		defer stop()
	}
	each := plan.Each
	if len(all) == 1 {
		each = 0
	}
	for turn := 0; flowing.Err() == nil; turn++ {
		if err := all[turn%len(all)].phase(flowing, each, view); err != nil {
			return err
		}
	}
	return nil
}

// once gives each mode a phase that begins without the key.
func once(ctx context.Context, each time.Duration, all []*traffic, view *report.LiveView) error {
	for i, t := range all {
		err := t.redis.Forget(ctx, t.config.Key, func(value string) bool { return backend.IsAnswer(t.config.Key, value) })
		if err == nil {
			err = t.phase(ctx, each, view)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("in %s, which is %d of %s: %w", t.mode.Name, i+1, herd.Count(len(all), "mode"), err)
		}
	}
	return nil
}

// keepSeries keeps how the traffic of the gallery went over time, beside what is kept of it anyway.
func (t *traffic) keepSeries(plan LivePlan, kept herd.Results) herd.Results {
	if plan.Scenario != modes.Gallery {
		return kept
	}
	series, keep := &herd.Series{TTL: t.config.TTL}, kept.Keep
	t.facts.Series = series
	kept.Keep = func(r herd.Response) {
		keep(r)
		series.Add(r)
	}
	return kept
}

// patience is what a herd in the backend needs to get out of it, and a second more.
func (c Config) patience() time.Duration {
	batches := 1.0
	if c.Backend.Capacity > 0 {
		batches = math.Ceil(float64(c.allWorkers()) / float64(c.Backend.Capacity))
	}
	return time.Duration(batches*(1+c.Backend.Jitter)*float64(c.Backend.Latency)) + time.Second
}

// phase lets one mode's stream flow for a time. No request of any mode is on its way when it begins, nor when it ends:
// Redis's own counts in between are of this mode. An error says that a process was lost.
func (t *traffic) phase(ctx context.Context, length time.Duration, view *report.LiveView) error {
	started := time.Now()
	if t.facts.Started.IsZero() {
		t.facts.Started = started
	}
	counting := context.WithoutCancel(ctx) // interrupted or not, what Redis counts is worth having
	t.bridge.Begin(t.config.allWorkers())
	before := t.redis.TakeCensus(counting)
	end := view.Phase(t.mode.Name, length)
	phase, err := t.flow(ctx, length)
	end(phase)
	t.bridge.Pause()
	counted, standing := t.redis.Count(counting, before)
	t.facts.RedisCommands.Add(counted, standing)
	t.facts.Duration += time.Since(started)
	t.telemetry.Push(counting) // before the next mode begins: never are two active
	return err
}
