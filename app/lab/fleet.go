package lab

import (
	"context"
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
	readyWait = 20 * time.Second // for a process to connect to Redis, with all its workers
	byeWait   = time.Minute      // for its telemetry to be delivered; one that is dead falls silent before that
)

// processes are those of a run, whose workers ask: this one coordinates. Make them with gatherProcesses, and end them.
type processes struct {
	*Lab
	all     []*remote
	joiners *joiners // nil for none
}

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
