package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cachelab/app/fleet"
	"cachelab/app/fleet/children"
	"cachelab/app/herd"
	"cachelab/app/results"
	"cachelab/telemetry"
)

const (
	gatherWait = 10 * time.Second // for its workers to be at the barrier
	stopWait   = 5 * time.Second  // for its answers, once the run was interrupted
	forEver    = 1 << 62          // of traffic without an end
)

// remote is one of the processes of a run, and a [herd.Party].
type remote struct {
	*fleet.Member
	child    *children.Child
	about    results.Process
	limit    time.Duration // of a round
	sessions map[string]*session

	connections int               // that it told so far
	answered    map[string]*tally // by mode
}

// tally is what the workers of a process did in a mode.
type tally struct{ requests, calls int }

// bye asks for what the process alone knows.
func (r *remote) bye(ctx context.Context) (bye fleet.Bye, spans map[string][]telemetry.Span, err error) {
	spans = map[string][]telemetry.Span{}
	if err := r.Send(ctx, fleet.KindEnd, nil); err != nil {
		return bye, spans, err
	}
	for {
		m, err := r.Receive(ctx)
		if err != nil {
			return bye, spans, err
		}
		if m.Kind != fleet.KindSeen {
			return bye, spans, m.As(fleet.KindBye, &bye)
		}
		var seen fleet.Seen
		if err := m.Read(&seen); err != nil {
			return bye, spans, err
		}
		for _, text := range seen.Spans {
			var span telemetry.Span
			if err := json.Unmarshal(text, &span); err != nil {
				return bye, spans, fmt.Errorf("read a span: %w", err)
			}
			spans[seen.Mode] = append(spans[seen.Mode], span)
		}
	}
}

// join adds what a process told at its end.
func (r *remote) join(bye fleet.Bye, recorded map[string][]telemetry.Span) {
	r.connected(bye.Connections)
	for _, part := range bye.Parts {
		s := r.sessions[part.Mode]
		if s == nil {
			continue
		}
		var spans telemetry.SpanCounts
		if err := json.Unmarshal(part.Spans, &spans); err != nil {
			s.others.undelivered = errors.Join(s.others.undelivered, fmt.Errorf("%v: its spans: %w", r.Member, err))
		}
		s.others.spans = s.others.spans.Plus(spans)
		s.others.links += part.Links
		s.others.unsampled += part.Unsampled
		s.others.trace(r.Number, s.config.others(), part.Traces)
		s.others.recorded = append(s.others.recorded, recorded[part.Mode]...)
		s.others.omitted += part.Omitted
		if part.Error != "" {
			s.others.undelivered = errors.Join(s.others.undelivered, fmt.Errorf("%v: %s", r.Member, part.Error))
		}
	}
}

// connected notes how many connections to Redis the process has made so far: they are no strangers'.
func (r *remote) connected(n int) {
	more := n - r.connections
	if more <= 0 {
		return
	}
	r.connections = n
	for _, s := range r.sessions {
		s.redis.Joined(more)
	}
}

// mode is the session of the only mode.
func (r *remote) mode() *session {
	for _, s := range r.sessions {
		return s
	}
	return nil
}

// Gather implements [herd.Party].
func (r *remote) Gather(ctx context.Context, round herd.Round) (herd.Gathered, error) {
	limited, cancel := context.WithTimeoutCause(ctx, gatherWait, fmt.Errorf("its workers were not at the barrier within %v", gatherWait))
	defer cancel()
	err := r.Send(limited, fleet.KindGather, fleet.Gather{Round: round.Number, Workers: round.Workers})
	if err == nil {
		err = r.Expect(limited, fleet.KindGathered, nil)
	}
	if err != nil {
		return nil, r.Lose(ctx, err)
	}
	return r, nil
}

// Dismiss implements [herd.Gathered].
func (r *remote) Dismiss() {
	limited, cancel := context.WithTimeout(context.Background(), gatherWait)
	defer cancel()
	_ = r.Lose(limited, r.Send(limited, fleet.KindDismiss, nil))
}

// Release implements [herd.Gathered].
func (r *remote) Release(ctx context.Context, tell func(herd.Response)) (time.Time, error) {
	s := r.mode()
	var done fleet.Done
	err := r.answers(ctx, s, r.limit, fleet.KindGo, fleet.Go{Traces: s.bridge.Traces(ctx, r.Number)}, tell, fleet.KindDone, &done)
	r.connected(done.Connections)
	if r.Elsewhere {
		done.Opened = time.Time{} // by another clock
	}
	return done.Opened, err
}

// answers asks the process for something, and tells the responses that come until it has said that it is done.
func (r *remote) answers(ctx context.Context, s *session, limit time.Duration, ask string, what any, tell func(herd.Response), done string, into any) error {
	waiting, cancel := r.patience(ctx, limit)
	defer cancel()
	err := r.Send(waiting, ask, what)
	for err == nil {
		var m fleet.Message
		if m, err = r.Receive(waiting); err != nil {
			break
		}
		if m.Kind != fleet.KindLines {
			err = m.As(done, into)
			break
		}
		err = r.lines(ctx, s, m, tell)
	}
	return r.Lose(ctx, err)
}

// source is the traffic of a process in a mode: a [herd.Source].
type source struct {
	*remote
	*session
	plan LivePlan
}

// Flow implements [herd.Source].
func (f source) Flow(ctx context.Context, length time.Duration, tell func(herd.Response)) (herd.Flowed, error) {
	if err := f.Lost(); err != nil {
		return herd.Flowed{}, err
	}
	limit := length + f.limit
	if length == 0 {
		limit = 0
	}
	var done fleet.PhaseDone
	err := f.answers(ctx, f.session, limit, fleet.KindPhase, fleet.Phase{Mode: f.session.mode.Name, Length: length, Think: f.plan.Think, Rate: f.plan.Rate},
		tell, fleet.KindPhaseDone, &done)
	f.connected(done.Connections)
	return herd.Flowed{Elapsed: done.Elapsed, NotSent: done.NotSent}, err
}

// patience returns a context for the answers of the process, with a limit (0: none). When ctx ends the process is told to stop, and has
// a moment more than those whom its requests have for them.
func (r *remote) patience(ctx context.Context, limit time.Duration) (context.Context, func()) {
	waiting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	if limit == 0 {
		limit = forEver
	}
	limiting := time.AfterFunc(limit, func() { cancel(fmt.Errorf("it had not answered within %v", limit)) })
	stop := context.AfterFunc(ctx, func() {
		limiting.Reset(r.mode().config.patience() + stopWait)
		_ = r.Send(waiting, fleet.KindStop, fleet.Stop{Why: context.Cause(ctx).Error()})
	})
	return waiting, func() {
		stop()
		limiting.Stop()
		cancel(nil)
	}
}

// lines tells responses, with what only this process knows of them: when the backend had made the value.
func (r *remote) lines(ctx context.Context, s *session, m fleet.Message, tell func(herd.Response)) error {
	var lines fleet.Lines
	if err := m.Read(&lines); err != nil {
		return err
	}
	for _, line := range lines.Lines {
		response, err := results.Decode(line, r.about)
		if err != nil {
			return err
		}
		if response.Answered.IsZero() && response.Err == nil && !response.Elsewhere {
			response.Answered = s.service.Answered(response.Value)
			s.bridge.Served(ctx, response)
		}
		told := r.answered[s.mode.Name]
		if response.Work == "" {
			told.requests++
		}
		told.calls += response.BackendCalls
		tell(response)
	}
	return nil
}
