package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/drill"
	"cachelab/app/events"
	"cachelab/app/fleet"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/app/results"
	"cachelab/telemetry"
)

// part is what this process does in a run that another one coordinates.
type part struct {
	*Lab
	Who
	coordinator *fleet.Peer
	run         fleet.Welcome
	started     time.Time
	modes       map[string]*session
	streams     map[string]*stream // of traffic, by mode
	closed      bool

	requests, calls int // so far

	asking sync.WaitGroup // a round, or a phase
	stop   context.CancelCauseFunc
}

// Who takes part in a run: this process.
type Who struct {
	fleet.Hello
	Modes modes.Table
	// Configure makes the config out of what the coordinator tells.
	Configure func(fleet.Welcome) (Config, error)
	// Terminal is told what this process does: if Quiet, not of each round.
	Terminal *report.Terminal
	Quiet    bool
	// Connections, if set, are those to Redis that the line has made.
	Connections func() int
}

// TakePart asks the coordinator at the other end of a line to take part in its run, and does what it is told, until it may go. When
// the line or ctx ends before that, it leaves in order: fill locks are given back.
func TakePart(ctx context.Context, line fleet.Line, who Who) error {
	redisstore.DiscardClientLog()
	telemetry.DiscardLog()
	coordinator, welcome, err := fleet.Join(ctx, line, who.Hello)
	if err != nil {
		return err
	}
	defer coordinator.Close()
	p := &part{Who: who, coordinator: coordinator, run: welcome, started: time.Now(), modes: map[string]*session{}, streams: map[string]*stream{}, stop: func(error) {}}
	err = p.open(ctx)
	if err == nil {
		err = p.serve(ctx)
	}
	if err != nil {
		err = errors.Join(err, p.close(ctx))
		_ = p.coordinator.Send(context.WithoutCancel(ctx), fleet.KindFailed, fleet.Failed{Error: err.Error()}) // if it is there
	}
	return err
}

func (p *part) open(ctx context.Context) error {
	config, err := p.Configure(p.run)
	if err != nil {
		return err
	}
	config.Processes, config.Capture = p.run.Processes, p.run.Capture && !p.run.Doomed
	if p.run.Doomed {
		config.Workers, config.Telemetry = 1, telemetry.Off
		config.WaitTimeout = time.Millisecond // it shall win or leave
	}
	p.Lab = &Lab{config: config, instance: rand.Text(), process: p.run.Process, terminal: p.Terminal}
	for i, name := range p.run.Modes {
		mode, err := p.Modes.Find(name)
		if err != nil {
			return err
		}
		s, err := p.openSession(ctx, mode, modes.Scenario(p.run.Scenario), p.run.Run, i == 0)
		if err != nil {
			return err
		}
		p.modes[name] = s
	}
	p.Terminal.Notice(fmt.Sprintf("joined run %s (%s, %s) as process %d of %d, with %s", p.run.Run, p.run.Scenario, strings.Join(p.run.Modes, ", "), p.run.Process, p.run.Processes,
		herd.Count(config.Workers, "worker")))
	return p.send(ctx, fleet.KindReady, fleet.Ready{Started: p.started, Connections: p.connections()})
}

func (p *part) send(ctx context.Context, kind string, body any) error {
	return p.coordinator.Send(ctx, kind, body)
}

// connections are those to Redis so far.
func (p *part) connections() (n int) {
	if p.Connections != nil {
		n = p.Connections()
	}
	for _, s := range p.modes {
		n += s.redis.Dialled()
	}
	return n
}

// serve does what it is told.
func (p *part) serve(ctx context.Context) error {
	defer func() {
		p.stop(errors.New("the coordinator has left"))
		p.asking.Wait()
	}()
	only := p.modes[p.run.Modes[0]]
	faults, tokens := drill.None(only.mode.Judge), make(chan string, 1)
	if p.run.Doomed {
		faults, only.newToken = drill.Doomed(func(step drill.Step) { p.step(ctx, step) }), awaitToken(tokens)
	}
	crowd := &herd.Herd{Strategy: only.strategy(unheard, faults), Key: p.config.Key, Workers: p.config.Workers, Process: p.process,
		Observer: only.bridge.Observer(herd.NoObserver{}), Results: herd.Results{TTL: p.config.TTL, Answered: only.service.Answered}}
	gathered := herd.Gathered(nil)
	for {
		m, err := p.coordinator.Receive(ctx)
		if err != nil {
			if gathered != nil {
				gathered.Dismiss()
			}
			if ctx.Err() != nil {
				return fmt.Errorf("left run %s before its end: %w", p.run.Run, err)
			}
			return fmt.Errorf("the coordinator of run %s: %w", p.run.Run, err)
		}
		switch m.Kind {
		case fleet.KindGather:
			var round fleet.Gather
			if err := m.Read(&round); err != nil {
				return err
			}
			gathered, err = crowd.Gather(ctx, herd.Round{Number: round.Round, Workers: round.Workers, Processes: p.run.Processes})
			if err == nil {
				err = p.send(ctx, fleet.KindGathered, nil)
			}
			if err != nil {
				return err
			}
		case fleet.KindDismiss:
			gathered.Dismiss()
			gathered = nil
		case fleet.KindGo:
			var start fleet.Go
			if err := m.Read(&start); err != nil {
				return err
			}
			round := gathered
			gathered = nil
			p.ask(ctx, func(ctx context.Context) error {
				return p.round(only.bridge.Under(ctx, p.config.Workers, start.Traces), round)
			})
		case fleet.KindPhase:
			var phase fleet.Phase
			if err := m.Read(&phase); err != nil {
				return err
			}
			if err := p.phase(ctx, phase); err != nil {
				return err
			}
		case fleet.KindToken:
			var token fleet.Token
			if err := m.Read(&token); err != nil {
				return err
			}
			tokens <- token.Token
		case fleet.KindStop:
			var stop fleet.Stop
			if err := m.Read(&stop); err != nil {
				return err
			}
			p.stop(errors.New(stop.Why))
		case fleet.KindEnd:
			p.asking.Wait()
			return p.bye(ctx)
		default:
			return fmt.Errorf("the coordinator said %q, which this version does not know", m.Kind)
		}
	}
}

// unheard: the steps are told to nobody.
func unheard(events.Event) {}

// step tells a step of a process that is doomed. An error is no concern of the step's: the line has ended, and so does the process.
func (p *part) step(ctx context.Context, step drill.Step) {
	step.Process, step.Connections = p.PID, p.connections()
	_ = p.send(ctx, fleet.KindStep, step)
}

// awaitToken waits for the token that the coordinator makes, which knows where the winner's trace is.
func awaitToken(tokens <-chan string) func(context.Context) string {
	return func(ctx context.Context) string {
		select {
		case token := <-tokens:
			return token
		case <-ctx.Done():
			return cache.RandomToken(ctx)
		}
	}
}

// ask lets the workers ask while the coordinator is listened to: it may stop them.
func (p *part) ask(ctx context.Context, do func(context.Context) error) {
	asking, stop := context.WithCancelCause(ctx)
	p.stop = stop
	p.asking.Go(func() {
		if err := do(asking); err != nil {
			_ = p.coordinator.Close() // which ends serve
		}
		stop(nil)
	})
}

// linesAtATime keeps messages below some 200 KB.
const linesAtATime = 500

// round releases the workers, and tells what they brought back.
func (p *part) round(ctx context.Context, gathered herd.Gathered) error {
	telling := context.WithoutCancel(ctx)
	var lines fleet.Lines
	var failed error
	number := 0
	requests, calls := p.requests, p.calls
	opened, err := gathered.Release(ctx, func(r herd.Response) {
		line, err := results.Encode(r, p.started)
		lines.Lines = append(lines.Lines, line)
		failed = errors.Join(failed, err)
		number = r.Worker.Round
		p.count(r)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for part := range slices.Chunk(lines.Lines, linesAtATime) {
		if err := p.send(telling, fleet.KindLines, fleet.Lines{Lines: part}); err != nil {
			return err
		}
	}
	p.say(fmt.Sprintf("round %d", number), requests, calls)
	return p.send(telling, fleet.KindDone, fleet.Done{Opened: opened, Connections: p.connections()})
}

// count adds a response to what is told of this process.
func (p *part) count(r herd.Response) {
	p.calls += r.BackendCalls
	if r.Work == "" {
		p.requests++
	}
}

// say tells what was done since there were so many.
func (p *part) say(when string, requests, calls int) {
	if !p.Quiet {
		p.Terminal.Say(fmt.Sprintf("%s: %s, %s", when, herd.Count(p.requests-requests, "request"), herd.Count(p.calls-calls, "backend call")))
	}
}

// bye closes everything, delivers what telemetry holds, and tells what only this process knows.
func (p *part) bye(ctx context.Context) error {
	closed := p.close(ctx)
	bye := fleet.Bye{Connections: p.connections()}
	for _, name := range p.run.Modes {
		s := p.modes[name]
		spans, err := json.Marshal(s.telemetry.Spans())
		if err != nil {
			return err
		}
		one := fleet.Part{Mode: name, Spans: spans, Links: s.bridge.Links(), Unsampled: s.bridge.Unsampled()}
		if s.telemetry.Traceable() {
			one.Traces = s.bridge.TraceIDs()
		}
		if s.undelivered != nil {
			one.Error = s.undelivered.Error()
		}
		if s.capture != nil {
			recording := s.capture.Recording()
			one.Omitted = recording.Omitted
			if err := p.seen(ctx, name, recording.Spans); err != nil {
				return err
			}
		}
		bye.Parts = append(bye.Parts, one)
	}
	p.Terminal.Notice(fmt.Sprintf("run %s has ended: %s and %s were this process's", p.run.Run, herd.Count(p.requests, "request"), herd.Count(p.calls, "backend call")))
	return errors.Join(closed, p.send(ctx, fleet.KindBye, bye))
}

// seen tells the spans of the round that is drawn.
func (p *part) seen(ctx context.Context, mode string, spans []telemetry.Span) error {
	for part := range slices.Chunk(spans, linesAtATime) {
		seen := fleet.Seen{Mode: mode}
		for _, span := range part {
			text, err := json.Marshal(span)
			if err != nil {
				return fmt.Errorf("write a span: %w", err)
			}
			seen.Spans = append(seen.Spans, text)
		}
		if err := p.send(ctx, fleet.KindSeen, seen); err != nil {
			return err
		}
	}
	return nil
}

// close closes what was opened, once.
func (p *part) close(ctx context.Context) error {
	if p.closed {
		return nil
	}
	p.closed = true
	errs := make([]error, 0, len(p.modes))
	for _, s := range p.modes {
		errs = append(errs, s.close(ctx))
	}
	return errors.Join(errs...)
}
