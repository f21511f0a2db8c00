package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cachelab/app/drill"
	"cachelab/app/fleet"
	"cachelab/app/herd"
	"cachelab/app/results"
)

// stream is the traffic of one mode.
type stream struct {
	herd.Stream
	lines chan json.RawMessage
}

// phase lets the traffic of a mode flow, and tells its responses as they come.
func (p *part) phase(ctx context.Context, phase fleet.Phase) error {
	s := p.modes[phase.Mode]
	if s == nil {
		return fmt.Errorf("the coordinator wants traffic of %q, of which it said nothing before", phase.Mode)
	}
	f := p.streams[phase.Mode]
	if f == nil {
		f = &stream{lines: make(chan json.RawMessage, linesAtATime)}
		f.Stream = herd.Stream{Strategy: s.strategy(unheard, drill.None(s.mode.Judge)), Key: p.config.Key, Workers: p.config.Workers, Think: phase.Think,
			Rate: phase.Rate, Seed: p.config.Backend.Seed, Process: p.process, Processes: p.run.Processes, Patience: p.config.patience(),
			Observer: s.bridge.Observer(herd.NoObserver{}), Results: herd.Results{TTL: p.config.TTL, Answered: s.service.Answered, Keep: p.keep(f)}}
		p.streams[phase.Mode] = f
	}
	p.ask(ctx, func(ctx context.Context) error {
		telling := make(chan error, 1)
		done := make(chan struct{})
		go func() { telling <- p.tell(context.WithoutCancel(ctx), f.lines, done) }()
		requests, calls := p.requests, p.calls
		flowed := f.Flow(ctx, phase.Length)
		close(done)
		if err := <-telling; err != nil {
			return err
		}
		p.say(phase.Mode, requests, calls)
		return p.send(context.WithoutCancel(ctx), fleet.KindPhaseDone, fleet.PhaseDone{Elapsed: flowed.Elapsed, NotSent: flowed.NotSent, Connections: p.connections()})
	})
	return nil
}

// keep hands a response on.
func (p *part) keep(f *stream) func(herd.Response) {
	return func(r herd.Response) {
		p.count(r)
		line, err := results.Encode(r, p.started)
		if err != nil { // cannot happen: a response is plain data
			return
		}
		f.lines <- line
	}
}

// tellEvery is how often responses of traffic are told.
const tellEvery = 100 * time.Millisecond

// tell tells the lines, some at a time, until all are told that came before done. When nobody takes them, the others are let go.
func (p *part) tell(ctx context.Context, lines <-chan json.RawMessage, done <-chan struct{}) (err error) {
	var some fleet.Lines
	send := func() {
		if len(some.Lines) > 0 && err == nil {
			err = p.send(ctx, fleet.KindLines, some)
		}
		some.Lines = nil
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case line := <-lines:
			if some.Lines = append(some.Lines, line); len(some.Lines) == linesAtATime {
				send()
			}
		case <-tick.C:
			send()
		case <-done:
			for len(lines) > 0 {
				some.Lines = append(some.Lines, <-lines)
			}
			send()
			return err
		}
	}
}
