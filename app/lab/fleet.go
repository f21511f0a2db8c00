package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"cachelab/app/facts"
	"cachelab/app/fleet"
	"cachelab/app/fleet/children"
	"cachelab/app/herd"
	"cachelab/app/results"
	"cachelab/telemetry"
)

// ProcessCommand is the hidden command of the program that takes part in a run: see [TakePart]. What it is told comes by its
// standard input: other users could see arguments.
const ProcessCommand = "take-part"

const (
	readyWait  = 20 * time.Second // for a process to connect to Redis, with all its workers
	gatherWait = 10 * time.Second // for its workers to be at the barrier
	stopWait   = 5 * time.Second  // for its answers, once the run was interrupted
	forEver    = 1 << 62          // of traffic without an end
	byeWait    = time.Minute      // for its telemetry to be delivered; one that is dead falls silent before that
)

// processes are those of a run, whose workers ask: this one coordinates. Make them with gatherProcesses, and end them.
type processes struct {
	*Lab
	all     []*remote
	joiners *joiners // nil for none
}

// remote is one of them. It is a [herd.Party].
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

// splits reports whether this process coordinates others, whose workers ask.
func (l *Lab) splits() bool { return l.config.others() > 0 && l.process == 0 }

// others are the processes whose workers ask, if they are not this one's.
func (c Config) others() int { return c.Processes + c.Joiners }

// allWorkers are those of all processes.
func (c Config) allWorkers() int { return c.Workers * max(1, c.others()) }

// gatherProcesses starts the processes of a run, waits for those that join it, and returns when all are connected. The sessions
// are its modes.
func (l *Lab) gatherProcesses(ctx context.Context, sessions ...*session) (p *processes, err error) {
	p = &processes{Lab: l, all: make([]*remote, l.config.Processes)}
	var joined []*remote
	if l.config.Joiners > 0 {
		if p.joiners, err = p.openDoor(ctx, sessions); err != nil {
			return nil, err
		}
		if joined, err = p.joiners.await(ctx, sessions[0].id); err != nil {
			p.all = joined
			p.close()
			return nil, fmt.Errorf("wait for the joiners: %w", err)
		}
	}
	errs := make([]error, len(p.all))
	var starting sync.WaitGroup
	for i := range p.all {
		starting.Go(func() { p.all[i], errs[i] = l.startProcess(ctx, seat{number: i + 1}, sessions) })
	}
	starting.Wait()
	p.all = append(p.all, joined...)
	if err := errors.Join(errs...); err != nil {
		p.close()
		return nil, fmt.Errorf("start the processes: %w", err)
	}
	for _, s := range sessions {
		for _, r := range p.all {
			s.redis.Joined(r.connections)
		}
	}
	return p, nil
}

// startProcess starts one on this machine.
func (l *Lab) startProcess(ctx context.Context, seat seat, sessions []*session) (*remote, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child, err := children.Start(program, []string{ProcessCommand}, os.Environ(), os.Stderr)
	if err != nil {
		return nil, err
	}
	seat.refuse = func(fleet.Hello) string { return "" }
	r, err := l.admit(ctx, child, seat, sessions)
	if err != nil {
		child.Kill()
		return nil, err
	}
	r.child, r.How = child, child.How
	return r, nil
}

// seat is the place of a process in a run.
type seat struct {
	number    int
	elsewhere bool
	doomed    bool
	// refuse says why a process cannot have it; "" if it can.
	refuse func(fleet.Hello) string
}

// admit welcomes or refuses the process at the other end of a line, and waits until it is ready.
func (l *Lab) admit(ctx context.Context, line fleet.Line, seat seat, sessions []*session) (*remote, error) {
	welcome := fleet.Welcome{Run: sessions[0].id, Process: seat.number, Processes: l.config.others(), Scenario: string(sessions[0].scenario), Capture: l.config.Capture,
		Settings: l.told(seat.elsewhere), Doomed: seat.doomed}
	for _, s := range sessions {
		welcome.Modes = append(welcome.Modes, s.mode.Name)
	}
	member, err := fleet.Admit(ctx, line, func(hello fleet.Hello) (fleet.Welcome, string) { return welcome, seat.refuse(hello) })
	if err != nil {
		return nil, err
	}
	member.Elsewhere = seat.elsewhere
	limited, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("it was not ready within %v", readyWait))
	defer cancel()
	var ready fleet.Ready
	if err := member.Expect(limited, fleet.KindReady, &ready); err != nil {
		return nil, member.Lose(ctx, err)
	}
	r := &remote{Member: member, connections: ready.Connections, limit: l.config.patience() + l.config.WaitTimeout + l.config.LockTTL,
		sessions: map[string]*session{}, answered: map[string]*tally{}}
	r.about = results.Process{Number: seat.number, PID: member.PID, Host: member.Host, Started: ready.Started, Elsewhere: member.Elsewhere}
	for _, s := range sessions {
		r.sessions[s.mode.Name], r.answered[s.mode.Name] = s, &tally{}
	}
	return r, nil
}

// told are the settings of the run as other processes are told them: those here with the Redis that was chosen, which may hold
// a password, and those elsewhere without.
func (l *Lab) told(elsewhere bool) (all []fleet.Setting) {
	at := l.redisAddress()
	chosen := map[string]string{"redis": at.URL, "redis-ca": at.CA, "redis-cert": at.Cert, "redis-key": at.Key, "redis-sni": at.ServerName,
		"redis-password-file": at.PasswordFile}
	for _, one := range l.config.Told {
		if value, ok := chosen[one.Name]; ok {
			if elsewhere {
				continue
			}
			one.Value = value
		}
		if one.Name == "backend" && l.shared != nil {
			if elsewhere { // where nobody reaches it
				continue
			}
			one.Value = l.shared.server.URL
		}
		all = append(all, one)
	}
	return all
}

// parties are the processes as a herd has them.
func (p *processes) parties() (all []herd.Party) {
	for _, r := range p.all {
		all = append(all, r)
	}
	return all
}

// about are the processes as results have them.
func (p *processes) about() (all []results.Process) {
	for _, r := range p.all {
		all = append(all, r.about)
	}
	return all
}

// facts are the processes as the run's facts in a mode have them.
func (p *processes) facts(mode string) (all []facts.Process) {
	for _, r := range p.all {
		told := r.answered[mode]
		one := facts.Process{Number: r.Number, PID: r.PID, Host: r.Host, Elsewhere: r.Elsewhere, Requests: told.requests, BackendCalls: told.calls}
		if lost := r.Lost(); lost != nil {
			one.Lost = lost.Error()
		}
		all = append(all, one)
	}
	return all
}

// close ends the processes at once, whatever they do.
func (p *processes) close() {
	for _, r := range p.all {
		if r == nil {
			continue
		}
		_ = r.Close()
		if r.child != nil {
			r.child.Kill()
		}
	}
	_ = p.joiners.close() // what is left goes by itself
	p.joiners = nil
}

// end lets the processes go, and adds what each of them alone knew to its sessions. Those that were lost are killed. The error
// names who was lost now.
func (p *processes) end(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), byeWait)
	defer cancel()
	var ending sync.WaitGroup
	byes, errs := make([]fleet.Bye, len(p.all)), make([]error, len(p.all))
	recorded := make([]map[string][]telemetry.Span, len(p.all))
	for i, r := range p.all {
		ending.Go(func() {
			if r.Lost() == nil {
				var err error
				byes[i], recorded[i], err = r.bye(limited)
				errs[i] = r.Lose(limited, err)
			}
			if r.child == nil {
				_ = r.Close()
				return
			}
			if r.Lost() != nil {
				r.child.Kill()
			}
			r.child.End()
		})
	}
	ending.Wait()
	for i, r := range p.all {
		r.join(byes[i], recorded[i])
	}
	return errors.Join(errs...)
}

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

// others are what the other processes of a run know of one of its modes.
type others struct {
	spans            telemetry.SpanCounts
	links, unsampled int
	traces           [][]string // of traffic, by round
	recorded         []telemetry.Span
	omitted          int
	undelivered      error
}

// trace notes the traces of a process's own rounds, whose numbers it has in turn with the others.
func (o *others) trace(process, processes int, traces [][]string) {
	for i, ids := range traces {
		at := i*processes + process - 1
		for len(o.traces) <= at {
			o.traces = append(o.traces, []string{})
		}
		o.traces[at] = ids
	}
}
