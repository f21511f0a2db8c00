package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/observe"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/telemetry"
)

// Live is the plan of a live run: workers that read on their own, in one mode after the other.
type Live struct {
	Modes []modes.Mode  // in turn; a single one goes on without phases
	Each  time.Duration // of a phase
	For   time.Duration // of the run; 0: until it is interrupted
	Think time.Duration // of a worker between two requests, on average
}

// Live runs until ctx ends or plan.For has passed, and prints what each mode came to. Both are the run's proper end
// and no error; whoever asked gets an answer first. The runs it returns have one id and differ in their mode; a mode
// without a single request is left out.
func (l *Lab) Live(ctx context.Context, plan Live) (runs []facts.Run, err error) {
	about := &run{Lab: l, scenario: modes.Live, started: time.Now(), plan: plan.String(l.config.Workers)}
	for _, mode := range plan.Modes {
		about.mode.Locks = about.mode.Locks || mode.Locks
	}
	about.id = newRunID(modes.Live, about.started)
	if err := l.ready(ctx, about.id, about.mode.Locks); err != nil {
		return nil, err
	}
	l.terminal.Notice(about.settings())

	shares, err := about.live(ctx, plan)
	runs = []facts.Run{}
	for _, s := range shares {
		if s.ledger.Requests == 0 {
			continue
		}
		result := facts.NewRun(s.ledger, s.facts)
		l.terminal.Summary(result)
		l.terminal.Delivery(result, nil, l.config.Links)
		s.record(result, s.ledger)
		runs = append(runs, result)
	}
	if about.undelivered != nil {
		l.terminal.Undelivered(about.undelivered)
	}
	return runs, err
}

// String says who asks, and in which mode.
func (p Live) String(workers int) string {
	var names []string
	for _, mode := range p.Modes {
		names = append(names, mode.Name)
	}
	text := fmt.Sprintf("%s, %d workers with %v of think time", strings.Join(names, " and "), workers, p.Think)
	if len(p.Modes) > 1 {
		text = fmt.Sprintf("%s in turn, %v each, %d workers with %v of think time", strings.Join(names, " and "), p.Each, workers, p.Think)
	}
	return text
}

// share is what one mode has of a live run: its own client, backend, spans and ledger.
type share struct {
	*run
	telemetry *telemetry.Telemetry
	redis     *redisstore.Redis
	service   *backend.Service
	bridge    *observe.Bridge
	stream    *herd.Stream
	ledger    herd.Ledger
}

// live sets up what the run needs, lets the streams flow in turn, and closes it all in reverse.
func (r *run) live(ctx context.Context, plan Live) (shares []*share, err error) {
	observed, err := telemetry.Start(ctx, telemetry.Options{
		Switch: r.config.Telemetry, Run: r.id, Version: r.config.Version, Lookup: r.config.LookupEnv, Console: r.config.Console,
		Spans: r.config.Spans, Reader: r.config.Reader,
	})
	if err != nil {
		return nil, err
	}
	r.terminal.Notice(observed.Notice)
	var branches []*telemetry.Telemetry
	defer func() {
		ending := context.WithoutCancel(ctx)
		r.undelivered = errors.Join(telemetry.ShutdownAll(ending, branches), observed.Shutdown(ending))
		for _, s := range shares {
			s.facts.Spans = s.telemetry.Spans()
		}
	}()

	for _, mode := range plan.Modes {
		s := &share{run: &run{Lab: r.Lab, mode: mode, scenario: modes.Live, id: r.id}}
		if s.telemetry, err = observed.Branch(ctx); err != nil {
			return nil, err
		}
		branches = append(branches, s.telemetry)
		instrument := func(client *redis.Client) error {
			return s.telemetry.InstrumentRedis(client, s.labels(), redisstore.CommandOf)
		}
		if s.redis, err = r.openRedis(ctx, r.id, instrument); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.redis.Close()) }()
		if s.service, s.bridge, err = s.observedBackend(s.telemetry); err != nil {
			return nil, err
		}
		s.bridge.Rest()
		shares = append(shares, s)
	}
	observed.Push(ctx) // the zeros, before the first increment

	view := r.terminal.Live(r.config.Workers, !r.config.Quiet)
	defer view.Close()
	for _, s := range shares {
		s.stream = s.newStream(plan.Think, view)
	}

	flowing, stop := context.WithCancel(ctx)
	defer stop()
	if plan.For > 0 {
		flowing, stop = context.WithTimeout(ctx, plan.For)
		defer stop()
	}
	each := plan.Each
	if len(shares) == 1 {
		each = 0
	}
	for turn := 0; flowing.Err() == nil; turn++ {
		shares[turn%len(shares)].flow(flowing, each, view)
	}
	for _, s := range shares {
		s.finish()
	}
	return shares, nil
}

func (s *share) newStream(think time.Duration, view *report.Live) *herd.Stream {
	tell := events.Teller(view.Tell)
	aside := cache.Aside{
		Store:     tell.Store(s.bridge.Store(s.redis)),
		Backend:   tell.Loader(s.bridge.Loader(s.service)),
		Probe:     tell.Probe(s.bridge.Probe(cache.NoProbe{})),
		TTL:       s.config.TTL,
		TTLJitter: s.config.TTLJitter,
		Passage:   redisstore.Passage(s.config.Workers),
	}
	lock := cache.FillLock{TTL: s.config.LockTTL, NewToken: s.bridge.NewToken}
	return &herd.Stream{
		Strategy: s.mode.New(modes.Parts{Aside: aside, Lock: lock, WaitTimeout: s.config.WaitTimeout}),
		Key:      s.config.Key,
		Workers:  s.config.Workers,
		Think:    think,
		Patience: s.config.patience(),
		Observer: view.Observe(s.mode.Name, s.bridge.Observer(herd.NoObserver{})),
	}
}

// patience is what a herd in the backend needs to get out of it, and a second more.
func (c Config) patience() time.Duration {
	batches := 1.0
	if c.Backend.Capacity > 0 {
		batches = math.Ceil(float64(c.Workers) / float64(c.Backend.Capacity))
	}
	return time.Duration(batches*(1+c.Backend.Jitter)*float64(c.Backend.Latency)) + time.Second
}

// flow is one phase. No request of any mode is on its way when it begins, nor when it ends: Redis's own counts in
// between are of this mode.
func (s *share) flow(ctx context.Context, length time.Duration, view *report.Live) {
	started := time.Now()
	if s.started.IsZero() {
		s.started = started
	}
	counting := context.WithoutCancel(ctx) // interrupted or not, what Redis counts is worth having
	s.bridge.Begin(s.config.Workers)
	before := s.redis.TakeCensus(counting)
	end := view.Phase(s.mode.Name, length)
	end(s.stream.Flow(ctx, length))
	s.bridge.Rest()
	counted, standing := s.redis.Count(counting, before)
	s.facts.RedisCommands.Add(counted, standing)
	s.facts.Duration += time.Since(started)
}

// finish gives the verdict on a mode and gathers what is told of it.
func (s *share) finish() {
	stats := s.service.Stats()
	s.ledger = s.stream.Ledger()
	s.ledger.Redundant, s.ledger.Repeated = stats.Redundant, stats.Repeated
	s.facts.Verdict = herd.JudgeStream(s.mode.Judge)(s.ledger)
	if s.ledger.Requests > 0 {
		s.bridge.Finish(s.ledger, s.facts.Verdict)
	}
	s.facts.ID, s.facts.Mode, s.facts.Scenario, s.facts.Redis = s.id, s.mode.Name, s.scenario, s.redisName()
	s.facts.BackendPeak = stats.Peak
	if s.telemetry.Traceable() {
		s.facts.TraceIDs = s.bridge.TraceIDs()
	}
	s.links, s.unsampled = s.bridge.Links(), s.bridge.Unsampled()
	s.facts.Started = s.started
}
