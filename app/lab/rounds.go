package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/results"
)

// Plan says what a run does, in rounds.
type Plan struct {
	Mode     modes.Mode
	Scenario modes.Scenario
	Drill    *drill.Drill // what is made to fail, and who judges; nil for none
}

// title is the mode, and the scenario where it is not the usual one.
func (p Plan) title() string {
	if p.Scenario == modes.Rounds {
		return p.Mode.Name
	}
	return fmt.Sprintf("%s (%s)", p.Scenario, p.Mode.Name)
}

// Run makes one run and prints it. The error says why it ended early; the returned run holds what there is.
// A run with a bad verdict is no error.
func (l *Lab) Run(ctx context.Context, plan Plan) (facts.Run, error) {
	started := time.Now()
	id := l.newRunID(plan.Scenario, started)
	if err := l.takeOwnRedis(ctx, plan.Drill); err != nil {
		return facts.Run{}, err
	}
	if err := l.ready(ctx, id, plan.Mode); err != nil {
		return facts.Run{}, err
	}
	who := l.config.who() + " x " + herd.Count(l.config.Rounds, "round")
	l.terminal.Notice(l.settings(plan.title(), who, plan.Mode.Locks, id))
	s, err := l.openSession(ctx, plan.Mode, plan.Scenario, id, true)
	if err != nil {
		return facts.Run{}, err
	}
	l.terminal.Notice(s.telemetry.Notice)
	ledger, err := s.rounds(ctx, plan.Drill)
	err = errors.Join(err, s.close(ctx))
	s.facts.Started, s.facts.Duration, s.facts.Err = started, time.Since(started), err
	return s.result(ledger), err
}

// rounds runs the rounds, with the faults of the drill if there is one.
func (s *session) rounds(ctx context.Context, d *drill.Drill) (ledger herd.Ledger, err error) {
	view := s.terminal.View(s.mode.Name, s.config.Workers, s.config.Rounds, !s.config.Quiet)
	defer view.Close()
	tell := s.watched(view.Tell)
	faults := s.faults(d, s.mode.Judge, tell)
	defer func() { err = errors.Join(err, faults.Close()) }()
	h := herd.Herd{
		Key:      s.config.Key,
		Workers:  s.config.allWorkers(),
		Rounds:   s.config.Rounds,
		Keeper:   s.patient(),
		Observer: view.Observe(s.watcher.Observe(s.bridge.Observer(herd.NoObserver{}))),
	}
	var others *processes
	if s.splits() {
		if others, err = s.gatherProcesses(ctx, s); err != nil {
			return ledger, err
		}
		defer others.close()
		h.Parties, h.Results = others.parties(), s.results(others.about()...)
	} else {
		h.Strategy, h.Results = s.strategy(tell, faults), s.results(results.This(0))
	}
	s.bridge.Begin(h.Workers)
	s.telemetry.Push(ctx) // the zeros, before the first increment
	before := s.redis.TakeCensus(ctx)
	ledger, err = h.Run(ctx)
	if others != nil {
		err = errors.Join(err, others.end(ctx))
		others.joiners.connected(s)
		s.facts.Processes = others.facts(s.mode.Name)
	}

	verdict := faults.Judge(ledger)
	if err != nil {
		verdict = early(verdict, ledger, s.config.Rounds, d != nil)
	}
	s.finish(ctx, ledger, verdict)
	s.masked = faults.Masked()
	// Interrupted or not, what Redis counted is worth having.
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	counts := &s.facts.RedisCommands
	counts.Commands, counts.Standing = s.redis.Count(counting, before)
	if !verdict.OK && counts.Standing == redisstore.Shared {
		s.facts.Verdict.Text += " (another client used this Redis meanwhile)"
	}
	return ledger, err
}

// who asks: the workers, and of how many processes.
func (c Config) who() string {
	workers := herd.Count(c.Workers, "worker")
	if c.others() > 0 {
		return herd.Count(c.others(), "process") + " x " + workers
	}
	return workers
}

// unfinished is the verdict on a drill that ended early: what it tells may not have taken place.
func unfinished(l herd.Ledger) herd.Verdict {
	return herd.Verdict{Text: herd.Claim(l.BackendCalls, l.Expiries) + ": the drill did not run to its end"}
}

// early is the verdict on a run that ended early: it did not do what it promised.
func early(v herd.Verdict, l herd.Ledger, rounds int, isDrill bool) herd.Verdict {
	if isDrill {
		v = unfinished(l)
	}
	v.OK = false
	v.Text = fmt.Sprintf("after %d of %d rounds: %s", l.Rounds, rounds, v.Text)
	return v
}
