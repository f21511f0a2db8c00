package lab

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/drill"
	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/observe"
	"cachelab/app/price"
	"cachelab/app/record"
	"cachelab/app/redisstore"
	"cachelab/app/results"
	"cachelab/telemetry"
)

// session is one mode of a run, wired: its telemetry, Redis, backend and strategy, and what is told of them. Rounds have
// one, and traffic has one for each of its modes.
type session struct {
	*Lab
	mode     modes.Mode
	scenario modes.Scenario
	id       string // of the run

	telemetry *telemetry.Telemetry
	capture   *telemetry.Capture // nil for none
	redis     *redisstore.Redis
	service   service
	client    *backend.Client // the service's; nil for one inside
	bridge    *observe.Bridge
	watcher   Watcher
	newToken  func(context.Context) string // of fill locks; nil for the bridge's

	facts       facts.Details
	kept        *results.Run // nil for none
	links       int          // of the spans
	served      int          // backend calls, as the backend counted them
	unsampled   int          // traces that the sampler left out
	masked      int          // see drill.Faults
	undelivered error        // what telemetry could not deliver
	others      others       // what other processes told of it
}

// openSession opens what the mode needs. The caller must close it. Of several sessions of one run, one is the first: it
// reports the Go runtime.
func (l *Lab) openSession(ctx context.Context, mode modes.Mode, scenario modes.Scenario, id string, first bool) (*session, error) {
	s := &session{Lab: l, mode: mode, scenario: scenario, id: id, watcher: nobody{}}
	if l.config.Watch != nil {
		s.watcher = l.config.Watch(mode.Name)
	}
	if err := s.open(ctx, first); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *session) open(ctx context.Context, first bool) (err error) {
	l := s.Lab
	if l.config.Capture {
		s.capture = telemetry.NewCapture(l.config.others())
	}
	s.telemetry, err = telemetry.Start(ctx, telemetry.Options{
		Switch: l.config.Telemetry, Run: s.id, Instance: l.instance, Version: l.config.Version, Lookup: l.config.LookupEnv, Console: l.config.Console,
		Spans: l.config.Spans, Reader: l.config.Reader, Capture: s.capture, WithoutRuntime: !first,
	})
	if err != nil {
		return err
	}
	labels := telemetry.Labels{Mode: s.mode.Name, Scenario: string(s.scenario)}
	s.redis, err = l.openRedis(ctx, s.id, func(client *redis.Client) error {
		return s.telemetry.InstrumentRedis(client, labels, redisstore.CommandOf)
	})
	if err != nil {
		return err
	}
	if err := s.openService(ctx); err != nil {
		return err
	}
	if s.bridge, err = observe.New(s.telemetry, labels, s.id, s.mode.Judge, reported{s.service, s.splits(), s.process > 0}); err != nil {
		return err
	}
	s.bridge.TTL = l.config.TTL
	s.bridge.Dashboard = func(from, to time.Time) string { return l.config.Links.Dashboard(s.id, from, to) }
	return nil
}

// strategy makes the mode's strategy, with the faults of a drill. Whatever it does is observed, and told.
func (s *session) strategy(tell events.Handler, faults drill.Faults) cache.Strategy {
	aside := cache.Aside{
		Store:   tell.Store(s.bridge.Store(faults.Store(s.redis))),
		Backend: tell.Loader(s.bridge.Loader(faults.Loader(s.service))),
		Probe:   tell.Probe(s.bridge.Probe(herd.Probe{})),
		TTL:     s.config.TTL,
		LockKey: s.lockKey,
		Passage: redisstore.Passage(s.config.allWorkers()),
	}
	lock := cache.FillLock{TTL: s.config.LockTTL, NewToken: s.bridge.NewToken}
	if s.newToken != nil {
		lock.NewToken = s.newToken
	}
	ahead := s.config.Ahead
	ahead.Delta = func(value string) (time.Duration, bool) {
		v, known := price.Parse(value)
		return v.Delta, known
	}
	return faults.Strategy(func(ttlJitter float64) cache.Strategy {
		aside := aside
		aside.TTLJitter = ttlJitter
		return s.mode.New(modes.Parts{Aside: aside, Lock: lock, Listener: s.redis.NewListener(), WaitTimeout: s.config.WaitTimeout, Ahead: ahead})
	}, s.config.TTLJitter)
}

// lockKey names the fill lock of the mode's strategy. A run is not begun whose key has none.
func (s *session) lockKey(key string) string {
	name, _ := s.redis.LockKey(key, s.mode.OneSlot)
	return name
}

// results of these processes begin, and say how responses are read, and that they are kept.
func (s *session) results(of ...results.Process) herd.Results {
	c := s.config
	s.kept = c.Results.Begin(results.Start{Run: s.id, Mode: s.mode.Name, Scenario: s.scenario, Drill: s.facts.Drill, Redis: s.redisName(),
		Version: c.Version, Workers: c.allWorkers(), Rate: s.facts.Rate, TTL: c.TTL, Settings: c.Settings}, of...)
	keep := func(r herd.Response) {
		s.kept.Keep(r)
		s.watcher.Keep(r)
	}
	return herd.Results{TTL: c.TTL, Answered: s.service.Answered, Keep: keep}
}

// finish keeps the verdict on the ledger, and what the trace and the backend know of the run.
func (s *session) finish(ctx context.Context, l herd.Ledger, v herd.Verdict) {
	v.Invariant = s.mode.Judge(l).Invariant // also of a drill, which promises something else
	s.facts.Verdict = v
	s.bridge.Pause()
	if l.Requests > 0 {
		s.bridge.Finish(l, v)
	}
	s.settle(ctx, l)
	if s.telemetry.Traceable() {
		s.facts.TraceIDs = append(s.bridge.TraceIDs(), s.others.traces...)
	}
	s.links, s.unsampled = s.bridge.Links()+s.others.links, s.bridge.Unsampled()+s.others.unsampled
	if s.capture != nil {
		recording := s.capture.Recording()
		recording.Join(s.others.recorded, s.others.omitted)
		s.facts.Waterfall = facts.NewWaterfall(recording).Of(s.facts.Processes)
	}
}

// close closes what was opened, in reverse, and delivers what telemetry still holds: an interrupted run's, too.
func (s *session) close(ctx context.Context) (err error) {
	if s.redis != nil {
		err = s.redis.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.shared != nil {
		s.shared.leave(s)
	}
	if s.telemetry != nil {
		s.undelivered = errors.Join(s.others.undelivered, s.telemetry.Shutdown(context.WithoutCancel(ctx)))
		s.facts.Spans = s.telemetry.Spans().Plus(s.others.spans)
	}
	return err
}

// result puts the ledger and the facts together, prints them, and keeps them for verify.
func (s *session) result(ledger herd.Ledger) facts.Run {
	s.facts.ID, s.facts.Mode, s.facts.Scenario, s.facts.Redis = s.id, s.mode.Name, s.scenario, s.redisName()
	s.kept.End(ledger, s.facts)
	run := facts.NewRun(ledger, s.facts)
	if ledger.Requests == 0 {
		return run
	}
	if s.config.Waterfall {
		s.terminal.Waterfalls(run)
	}
	if run.Gallery() && s.config.Quiet { // one table has it all
		s.terminal.Incomplete(run, s.undelivered)
	} else {
		s.terminal.Summary(run)
		s.terminal.Delivery(run, s.undelivered, s.config.Links)
	}
	if s.config.Records == "" {
		return run
	}
	// A folder that cannot be written is no reason to fail a run.
	err := record.Save(s.config.Records, record.Record{Run: run, Sent: ledger.Sent, Missed: ledger.Missed, Waiters: ledger.Waiters,
		Links: s.links, Served: s.served, Unsampled: s.unsampled, Masked: s.masked})
	if err != nil {
		s.terminal.Warn(err.Error())
	}
	return run
}
