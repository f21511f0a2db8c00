// Package lab is the wiring of a run: Redis, backend, strategy, herd and report, closed in reverse.
package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/drill"
	"cachelab/app/embedded"
	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/observe"
	"cachelab/app/record"
	"cachelab/app/redisserver"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/telemetry"
)

// Config is what a run needs to know. The command line validates it.
type Config struct {
	Workers     int
	Rounds      int
	Key         string
	TTL         time.Duration
	TTLJitter   float64
	LockTTL     time.Duration
	WaitTimeout time.Duration
	Backend     backend.Config
	Redis       redisstore.Target
	Quiet       bool // no line for each step

	Telemetry telemetry.Switch
	Version   string // of the program
	// LookupEnv is os.LookupEnv, for the OTEL_* variables; Console is where OTEL_*_EXPORTER=console writes.
	LookupEnv func(string) (string, bool)
	Console   io.Writer
	Links     facts.Links
	Records   string // folder in which runs are recorded; "" for none
	// Spans and Reader, if set, get what is exported, and are there without any receiver.
	Spans  sdktrace.SpanProcessor
	Reader sdkmetric.Reader
	// Locks says that some run of the lab takes the fill lock: before the first it is found out whether Redis permits it.
	Locks bool
	// Record keeps the spans of the first round of each run for pictures; Waterfall prints one after each run.
	Record, Waterfall bool
}

// Lab holds what runs have in common: the Redis to use. Make one with [Open], and Close it.
type Lab struct {
	config   Config
	terminal *report.Terminal
	embedded *embedded.Server    // nil if a real Redis is used
	server   *redisserver.Server // of a drill that stops its Redis; nil otherwise
}

// Open chooses the Redis, and starts the embedded one if need be; one line says so.
func Open(ctx context.Context, config Config, terminal *report.Terminal) (*Lab, error) {
	redisstore.DiscardClientLog()
	telemetry.DiscardLog()
	l := &Lab{config: config, terminal: terminal}
	switch {
	case config.Redis.Embedded:
		return l, l.embed("")
	case config.Redis.Auto:
		if err := redisstore.Probe(ctx, config.Redis); err != nil {
			return l, l.embed(fmt.Sprintf(" (%v)", err))
		}
	}
	return l, nil
}

// embed uses the embedded Redis from now on; a line says so, and why.
func (l *Lab) embed(why string) (err error) {
	if l.embedded, err = embedded.Start(); err != nil {
		return err
	}
	l.terminal.Notice("redis: using the embedded one" + why)
	return nil
}

// Close stops the Redis servers that are the lab's.
func (l *Lab) Close() error {
	var errs []error
	if l.server != nil {
		errs = append(errs, l.server.Close())
	}
	if l.embedded != nil {
		errs = append(errs, l.embedded.Close())
	}
	return errors.Join(errs...)
}

// Plan says what a run does.
type Plan struct {
	Mode     modes.Mode
	Scenario modes.Scenario
	Drill    *drill.Drill // what is made to fail, and who judges; nil for none
}

// Run makes one run and prints it. The error says why it ended early; the returned run holds what there is.
// A run with a bad verdict is no error.
func (l *Lab) Run(ctx context.Context, plan Plan) (facts.Run, error) {
	r := &run{Lab: l, mode: plan.Mode, scenario: plan.Scenario, drill: plan.Drill, started: time.Now(),
		plan: fmt.Sprintf("%d workers x %d rounds", l.config.Workers, l.config.Rounds)}
	r.id = newRunID(plan.Scenario, r.started)
	if plan.Drill != nil {
		r.facts.Drill = plan.Drill.Name
		if plan.Drill.OwnsRedis && l.server == nil {
			if err := l.takeOwnRedis(ctx); err != nil {
				return facts.Run{}, err
			}
		}
	}
	if err := l.ready(ctx, r.id, plan.Mode.Locks); err != nil {
		return facts.Run{}, err
	}
	l.terminal.Notice(r.settings())

	ledger, err := r.do(ctx)
	r.facts.ID, r.facts.Mode, r.facts.Scenario, r.facts.Redis = r.id, r.mode.Name, r.scenario, l.redisName()
	r.facts.Started, r.facts.Duration = r.started, time.Since(r.started)
	r.facts.Err = err
	result := facts.NewRun(ledger, r.facts)
	if ledger.Rounds > 0 {
		if l.config.Waterfall {
			l.terminal.Waterfalls(result)
		}
		l.terminal.Summary(result)
		l.terminal.Delivery(result, r.undelivered, l.config.Links)
		r.record(result, ledger)
	}
	return result, err
}

// run is one run on its way.
type run struct {
	*Lab
	mode     modes.Mode
	scenario modes.Scenario
	drill    *drill.Drill // nil for none
	id       string
	started  time.Time
	plan     string // who asks, and how often

	facts       facts.Details
	undelivered error // what telemetry could not deliver
	links       int   // of the spans
	unsampled   int   // traces that the sampler left out
	masked      int   // see drill.Faults
}

// do sets up what a run needs, runs the rounds, and closes it all in reverse.
func (r *run) do(ctx context.Context) (ledger herd.Ledger, err error) {
	var recorder *telemetry.Recorder
	if r.config.Record {
		recorder = telemetry.NewRecorder()
	}
	observed, err := telemetry.Start(ctx, telemetry.Options{
		Switch: r.config.Telemetry, Run: r.id, Version: r.config.Version, Lookup: r.config.LookupEnv, Console: r.config.Console,
		Spans: r.config.Spans, Reader: r.config.Reader, Recorder: recorder,
	})
	if err != nil {
		return ledger, err
	}
	r.terminal.Notice(observed.Notice)
	// The end of telemetry does not end with the run's context: an interrupted run is delivered too.
	defer func() {
		r.undelivered = observed.Shutdown(context.WithoutCancel(ctx))
		r.facts.Spans = observed.Spans()
	}()

	redis, err := r.openRedis(ctx, r.id, func(client *redis.Client) error {
		return observed.InstrumentRedis(client, r.labels(), redisstore.CommandOf)
	})
	if err != nil {
		return ledger, err
	}
	defer func() { err = errors.Join(err, redis.Close()) }()

	service, bridge, err := r.observedBackend(observed)
	if err != nil {
		return ledger, err
	}
	view := r.terminal.View(r.mode.Name, r.config.Workers, r.config.Rounds, !r.config.Quiet)
	defer view.Close()
	tell := events.Teller(view.Tell)
	faults := r.faults(redis, bridge, tell)
	defer func() { err = errors.Join(err, faults.Close()) }()

	aside := cache.Aside{
		Store:   tell.Store(bridge.Store(faults.Store(redis))),
		Backend: tell.Loader(bridge.Loader(faults.Loader(service))),
		Probe:   tell.Probe(bridge.Probe(cache.NoProbe{})),
		TTL:     r.config.TTL,
		Passage: redisstore.Passage(r.config.Workers),
	}
	lock := cache.FillLock{TTL: r.config.LockTTL, NewToken: bridge.NewToken}
	newStrategy := func(ttlJitter float64) cache.Strategy {
		aside := aside
		aside.TTLJitter = ttlJitter
		return r.mode.New(modes.Parts{Aside: aside, Lock: lock, WaitTimeout: r.config.WaitTimeout})
	}
	h := herd.Herd{
		Strategy: faults.Strategy(newStrategy, r.config.TTLJitter),
		Key:      r.config.Key,
		Workers:  r.config.Workers,
		Rounds:   r.config.Rounds,
		Keeper:   r.patient(redis),
		Observer: view.Observe(bridge.Observer(herd.NoObserver{})),
	}
	bridge.Begin(r.config.Workers)
	observed.Push(ctx) // the zeros, before the first increment
	before := redis.TakeCensus(ctx)
	ledger, err = h.Run(ctx)
	stats := service.Stats()
	ledger.Redundant, ledger.Repeated = stats.Redundant, stats.Repeated

	r.judge(faults.Judge, ledger, err)
	bridge.Finish(ledger, r.facts.Verdict)
	r.facts.BackendPeak = stats.Peak
	if observed.Traceable() {
		r.facts.TraceIDs = bridge.TraceIDs()
	}
	r.links, r.unsampled, r.masked = bridge.Links(), bridge.Unsampled(), faults.Masked()
	if recorder != nil {
		r.facts.Round = facts.NewRound(recorder.Recording())
	}
	// Interrupted or not, what Redis counted is worth having.
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	r.facts.RedisCommands.Commands, r.facts.RedisCommands.Standing = redis.Count(counting, before)
	if !r.facts.Verdict.OK && r.facts.RedisCommands.Standing == redisstore.Shared {
		r.facts.Verdict.Text += " (another client used this Redis meanwhile)"
	}
	return ledger, err
}

// record keeps the run for verify. A folder that cannot be written is no reason to fail a run.
func (r *run) record(result facts.Run, ledger herd.Ledger) {
	if r.config.Records == "" {
		return
	}
	err := record.Save(r.config.Records, record.Record{Run: result, Sent: ledger.Sent, Missed: ledger.Missed, Waiters: ledger.Waiters,
		Links: r.links, Unsampled: r.unsampled, Masked: r.masked})
	if err != nil {
		r.terminal.Warn(err.Error())
	}
}

// observedBackend returns the backend and the bridge, which tell each other of calls.
func (r *run) observedBackend(t *telemetry.Telemetry) (service *backend.Service, bridge *observe.Bridge, err error) {
	config := r.config.Backend
	config.TTL = r.config.TTL
	config.OnCall = func(ctx context.Context, c backend.Call) { bridge.DescribeCall(ctx, c) }
	service = backend.New(config)
	bridge, err = observe.New(t, r.labels(), r.id, service)
	if err != nil {
		return nil, nil, err
	}
	bridge.Dashboard = func(from, to time.Time) string { return r.config.Links.Dashboard(r.id, from, to) }
	return service, bridge, nil
}

// judge gives the verdict: a run that ended early did not do what it promised.
func (r *run) judge(judge herd.Judge, ledger herd.Ledger, err error) {
	r.facts.Verdict = judge(ledger)
	if err == nil {
		return
	}
	text := r.facts.Verdict.Text
	if r.drill != nil { // what it tells may not have taken place
		text = herd.Claim(ledger.BackendCalls, ledger.Expiries) + ": the drill did not run to its end"
	}
	r.facts.Verdict.OK = false
	r.facts.Verdict.Text = fmt.Sprintf("after %d of %d rounds: %s", ledger.Rounds, r.config.Rounds, text)
}

func (l *Lab) openRedis(ctx context.Context, id string, instrument func(*redis.Client) error) (*redisstore.Redis, error) {
	options := redisstore.Options{Target: l.config.Redis, Workers: l.config.Workers, Name: "cachelab-" + id, Instrument: instrument}
	switch {
	case l.server != nil:
		return redisstore.OpenAt(ctx, l.server.Addr(), options)
	case l.embedded == nil:
		return redisstore.Open(ctx, options)
	}
	options.Commands, options.Starts = l.embedded.Commands, l.embedded.Starts
	return redisstore.OpenAt(ctx, l.embedded.Addr(), options)
}

func (l *Lab) redisName() string {
	if l.server != nil {
		return "redis://" + l.server.Addr()
	}
	if l.embedded != nil {
		return "embedded"
	}
	return l.config.Redis.Location()
}

func (r *run) labels() telemetry.Labels {
	return telemetry.Labels{Mode: r.mode.Name, Scenario: string(r.scenario)}
}

// title is the mode, and the scenario where it is not the usual one.
func (r *run) title() string {
	switch {
	case r.scenario == modes.Rounds:
		return r.mode.Name
	case r.mode.Name == "": // live tells its modes in its plan
		return string(r.scenario)
	}
	return fmt.Sprintf("%s (%s)", r.scenario, r.mode.Name)
}

// settings are the lines that a run starts with.
func (r *run) settings() string {
	c := r.config
	b := c.Backend
	text := fmt.Sprintf("%s: %s on %q, TTL %v", r.title(), r.plan, c.Key, c.TTL)
	if c.TTLJitter > 0 {
		text += fmt.Sprintf(" +-%.4g%%", c.TTLJitter*100)
	}
	if r.mode.Locks {
		text += fmt.Sprintf(", lock TTL %v, wait timeout %v", c.LockTTL, c.WaitTimeout)
	}
	text += fmt.Sprintf("\n  backend %v +-%.4g%%", b.Latency, b.Jitter*100)
	if b.Capacity > 0 {
		text += fmt.Sprintf(", %d at once", b.Capacity)
	}
	if failures := b.Failures.String(); failures != "" {
		text += ", fails: " + failures
	}
	return text + fmt.Sprintf("; redis %s; run %s", r.redisName(), r.id)
}

// newRunID names a run so that it can be told from others, and be read: scenario, time, and 4 random characters.
func newRunID(scenario modes.Scenario, started time.Time) string {
	return fmt.Sprintf("%s-%s-%s", scenario, started.UTC().Format("20060102-150405"), strings.ToLower(rand.Text()[:4]))
}
