package lab

import (
	"context"
	"errors"
	"fmt"

	"cachelab/app/cache"
	"cachelab/app/drill"
	"cachelab/app/embedded"
	"cachelab/app/events"
	"cachelab/app/fleet"
	"cachelab/app/herd"
	"cachelab/app/observe"
	"cachelab/app/redisserver"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// ErrNoServers says that a drill cannot have the servers that it needs.
var ErrNoServers = errors.New("this drill starts redis-server processes of its own")

// takeOwnRedis starts what the drill has of its own. In the place of one server the embedded one may do.
func (l *Lab) takeOwnRedis(ctx context.Context, d *drill.Drill) (err error) {
	switch {
	case d == nil || d.Owns == drill.Nothing || l.owns():
		return nil
	case d.Owns == drill.One && l.config.Redis.Embedded:
		return l.takeEmbedded()
	case l.config.Redis.Embedded:
		return fmt.Errorf("%w, %s, and --redis is embedded", ErrNoServers, d.Owns)
	}
	where := ""
	switch d.Owns {
	case drill.Pair:
		if l.pair, err = redisserver.NewPair(ctx); err == nil {
			where, _ = l.pair.Master(ctx)
		}
	case drill.Cluster:
		if l.cluster, err = redisserver.NewCluster(ctx, 3); err == nil {
			where = l.cluster.Nodes[0].Addr()
		}
	default:
		if l.server, err = redisserver.New(ctx); err == nil {
			where = l.server.Addr()
		}
	}
	switch {
	case err == nil:
		l.terminal.Notice(fmt.Sprintf("redis: this drill stops, empties or changes its Redis, so it has %s of its own, at %s", d.Owns, where))
		return nil
	case !errors.Is(err, redisserver.ErrNone):
		return err
	case d.Owns != drill.One:
		return fmt.Errorf("%w, %s: %w", ErrNoServers, d.Owns, err)
	}
	l.terminal.Notice(fmt.Sprintf("redis: this drill stops or empties its Redis: %v, so it uses the embedded one", err))
	return l.takeEmbedded()
}

func (l *Lab) takeEmbedded() (err error) {
	if l.embedded == nil {
		l.embedded, err = embedded.Start()
	}
	return err
}

// ownRedis is the server that a drill may stop.
func (l *Lab) ownRedis() drill.Server {
	if l.server != nil {
		return l.server
	}
	return l.embedded
}

// redisAddress is where another process finds the run's Redis. It may hold a password.
func (l *Lab) redisAddress() redisstore.Address {
	switch {
	case l.server != nil:
		return redisstore.Address{URL: "redis://" + l.server.Addr()}
	case l.embedded != nil:
		return redisstore.Address{URL: "redis://" + l.embedded.Addr()}
	}
	return l.config.Redis.Address()
}

// faults begins the drill; without one there are none, and it is judge who judges.
func (s *session) faults(d *drill.Drill, judge herd.Judge, tell events.Handler) drill.Faults {
	if d == nil {
		return drill.None(judge)
	}
	s.facts.Drill = d.Name
	scene := drill.Scene{
		Workers: s.config.Workers, Rounds: s.config.Rounds, Key: s.config.Key, TTLJitter: s.config.TTLJitter,
		ValueTTL: s.config.TTL, LockTTL: s.config.LockTTL, Latency: s.config.Backend.Latency, Beta: s.config.Ahead.Beta,
		Report: func(ctx context.Context, text string) {
			s.bridge.Fault(ctx, text)
			tell.Fault(ctx, text)
		},
		TTL:    s.redis.TTL,
		Winner: s.startWinner,
		Step: func(ctx context.Context, step drill.Step, err error) {
			tell.Step(ctx, toldStep(step), err)
			if step.Ended.IsZero() { // the last one that the process itself tells
				s.redis.Joined(step.Connections)
				return
			}
			s.bridge.Reported(ctx, observedStep(step, err))
		},
		Probe:    s.bridge.Probe(cache.NoProbe{}),
		NewToken: s.bridge.NewToken,
	}
	switch d.Owns {
	case drill.One:
		scene.Redis, scene.Flush = s.ownRedis(), s.redis.Flush
	case drill.Pair:
		scene.Replica = s.pair
	case drill.Cluster:
		scene.MoveSlot, scene.SentOn = s.redis.MoveSlot, func() int { return int(s.sentOn.Load()) }
	}
	return d.Begin(scene)
}

func observedStep(s drill.Step, err error) observe.RemoteStep {
	step := observe.RemoteStep{Span: s.Command, Began: s.Began, Ended: s.Ended, Process: s.Process, Err: err}
	switch s.Command {
	case telemetry.SpanGet:
		step.Attributes = append(step.Attributes, telemetry.CacheHit.Bool(s.Yes))
		if s.Recheck {
			step.Attributes = append(step.Attributes, telemetry.Recheck.Bool(true))
		}
	case telemetry.SpanLock:
		step.Attributes = append(step.Attributes, telemetry.LockAcquired.Bool(s.Yes))
	}
	return step
}

// toldStep is the step as the same worker in this process would tell it.
func toldStep(s drill.Step) events.Kind {
	switch {
	case s.Command == telemetry.SpanLock:
		return events.Acquired
	case s.Command == telemetry.SpanBackendCall:
		return events.Call
	case s.Recheck:
		return events.RecheckMiss
	}
	return events.GetMiss
}

// winner is the worker of a drill that is a process of its own.
type winner struct {
	*remote
}

// startWinner starts it, and lets it ask.
func (s *session) startWinner(ctx context.Context) (drill.Winner, error) {
	r, err := s.startProcess(ctx, seat{number: 1, doomed: true}, []*session{s})
	if err != nil {
		return nil, err
	}
	if _, err = r.Gather(ctx, herd.Round{Number: 1, Workers: 1, Processes: 1}); err == nil {
		err = r.Send(ctx, fleet.KindGo, fleet.Go{}) // there will be no answer
	}
	if err != nil {
		r.child.Kill()
		return nil, err
	}
	return winner{r}, nil
}

// Pid implements [drill.Winner].
func (w winner) Pid() int { return w.PID }

// Step implements [drill.Winner].
func (w winner) Step(ctx context.Context) (step drill.Step, err error) {
	err = w.Expect(ctx, fleet.KindStep, &step)
	return step, err
}

// Token implements [drill.Winner].
func (w winner) Token(ctx context.Context, token string) error {
	return w.Send(ctx, fleet.KindToken, fleet.Token{Token: token})
}

// Kill implements [drill.Winner].
func (w winner) Kill() string {
	w.child.Kill()
	return w.child.How()
}
