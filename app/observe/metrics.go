package observe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// Backend is asked at each push. Asking changes nothing.
type Backend interface {
	Stats() backend.Stats
	RecentPeak() int
}

// instruments are the metrics of the lab. A step of a request is counted when it happens, if it can be seen from outside,
// else when its worker is back: either way what is exported is in the end what the ledger holds.
type instruments struct {
	steps    []step
	misses   series
	calls    series
	answers  map[string]series
	requests map[cache.Outcome]series
	rounds   series

	requestDuration, waitDuration, backendDuration metric.Float64Histogram
	commands                                       metric.Int64Counter
	outcome                                        map[cache.Outcome]metric.MeasurementOption
	result                                         map[string]metric.MeasurementOption
	mode                                           metric.MeasurementOption

	active, verdict, workers metric.Int64Gauge
	latency                  metric.Float64Gauge
	labels                   telemetry.Labels
}

// step is the series of a step, and how to find its count in a request's.
type step struct {
	series
	of func(cache.Counts) int
}

// series is a counter with its attributes.
type series struct {
	instrument metric.Int64Counter
	attributes metric.MeasurementOption
}

// add counts without a context: exemplars belong on the latencies.
func (s series) add(n int) { s.instrument.Add(context.Background(), int64(n), s.attributes) }

// The results of counters: small closed sets.
const (
	resultHit, resultMiss         = "hit", "miss"
	resultAcquired, resultHeld    = "acquired", "held"
	resultReleased, resultLost    = "released", "lost"
	resultOK, resultError         = "ok", "error"
	resultUnknown                 = "unknown" // the caller left, or died, before the answer
	resultExported, resultDropped = "exported", "dropped"
)

func newInstruments(t *telemetry.Telemetry, labels telemetry.Labels, service Backend) (*instruments, error) {
	meter := t.MeterProvider.Meter(telemetry.Service)
	m := &instruments{
		labels:   labels,
		answers:  map[string]series{},
		requests: map[cache.Outcome]series{},
		outcome:  map[cache.Outcome]metric.MeasurementOption{},
		result:   map[string]metric.MeasurementOption{},
	}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(labels.Set(more...))
	}
	// new makes a series and reports it as 0: the first increment must not be the first sample.
	newSeries := func(name, description, unit string, more ...attribute.KeyValue) series {
		c, err := meter.Int64Counter(name, metric.WithDescription(description), metric.WithUnit(unit))
		keep(err)
		s := series{c, with(more...)}
		s.add(0)
		return s
	}
	count := func(of func(cache.Counts) int, name, description, unit string, more ...attribute.KeyValue) {
		m.steps = append(m.steps, step{newSeries(name, description, unit, more...), of})
	}
	result := telemetry.Result.String

	gets := "replies to GET"
	count(func(c cache.Counts) int { return c.Hits }, telemetry.MetricGets, gets, "{reply}", result(resultHit))
	count(func(c cache.Counts) int { return c.Misses }, telemetry.MetricGets, gets, "{reply}", result(resultMiss))
	attempts := "attempts to take the fill lock"
	count(func(c cache.Counts) int { return c.Acquired }, telemetry.MetricLockAttempts, attempts, "{attempt}", result(resultAcquired))
	count(func(c cache.Counts) int { return c.Held }, telemetry.MetricLockAttempts, attempts, "{attempt}", result(resultHeld))
	count(func(c cache.Counts) int { return c.Rechecked }, telemetry.MetricLockRechecks, "re-checks under the lock that found the value", "{check}")
	releases := "releases of the fill lock"
	count(func(c cache.Counts) int { return c.Released }, telemetry.MetricLockReleases, releases, "{release}", result(resultReleased))
	count(func(c cache.Counts) int { return c.Lost }, telemetry.MetricLockReleases, releases, "{release}", result(resultLost))
	count(func(c cache.Counts) int { return c.ReleasesRefused + c.ReleasesUnanswered }, telemetry.MetricLockReleases, releases, "{release}", result(resultError))
	count(func(c cache.Counts) int { return c.Timeouts }, telemetry.MetricLockTimeouts, "waiters past their limit", "{waiter}")
	count(func(c cache.Counts) int { return c.Polls }, telemetry.MetricPolls, "GETs of waiters", "{poll}")
	count(func(c cache.Counts) int { return c.SetsAbsent }, telemetry.MetricExpiries, "expiry cycles that a fill ended", "{cycle}")
	m.misses = newSeries(telemetry.MetricMisses, "requests whose first GET found nothing", "{request}")
	m.calls = newSeries(telemetry.MetricBackendCalls, "backend calls that began", "{call}")
	for _, r := range []string{resultOK, resultError, resultUnknown} {
		m.answers[r] = newSeries(telemetry.MetricBackendAnswers, "backend calls that ended, by how", "{call}", result(r))
		m.result[r] = with(result(r))
	}
	m.rounds = newSeries(telemetry.MetricRounds, "rounds that took place", "{round}")
	for _, o := range cache.Outcomes() {
		outcome := telemetry.Outcome.String(string(o))
		m.requests[o] = newSeries(telemetry.MetricRequests, "requests by how they ended", "{request}", outcome)
		m.outcome[o] = with(outcome)
	}
	m.mode = with()

	histogram := func(name, description string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(telemetry.Buckets()...))
		keep(err)
		return h
	}
	m.requestDuration = histogram(telemetry.MetricRequestDuration, "time from a worker's request to its answer")
	m.waitDuration = histogram(telemetry.MetricWaitDuration, "time that a waiter waited for the fill")
	m.backendDuration = histogram(telemetry.MetricBackendDuration, "time of a backend call, queueing included")

	gauge := func(name, description, unit string) metric.Int64Gauge {
		g, err := meter.Int64Gauge(name, metric.WithDescription(description), metric.WithUnit(unit))
		keep(err)
		return g
	}
	m.active = gauge(telemetry.MetricRunActive, "1 during a run, 0 at its end", "1")
	m.verdict = gauge(telemetry.MetricRunVerdict, "at the end: 1 if the run did what its mode promises, else 0", "1")
	m.workers = gauge(telemetry.MetricWorkers, "workers of the herd", "{worker}")
	var err error
	m.latency, err = meter.Float64Gauge(telemetry.MetricRunLatency, metric.WithUnit("s"),
		metric.WithDescription("the ledger's exact quantiles of the request latency, at the end"))
	keep(err)
	m.commands, err = t.CommandCounter()
	keep(err)

	// Callbacks are registered apart from their instruments: a run of two modes has each instrument once, and
	// each callback twice.
	observe := func(instrument metric.Int64Observable, tell func(metric.Observer)) {
		_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			tell(o)
			return nil
		}, instrument)
		keep(err)
	}
	observed := func(name, description, unit string, value func() int) {
		g, err := meter.Int64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
		keep(err)
		observe(g, func(o metric.Observer) { o.ObserveInt64(g, int64(value()), m.mode) })
	}
	observed(telemetry.MetricBackendPeak, "most backend calls in flight in the last 2 s", "{call}", service.RecentPeak)
	observed(telemetry.MetricBackendQueued, "backend calls that queue for capacity", "{call}", func() int { return service.Stats().Queued })

	counted := func(name, description string, value func() int) {
		c, err := meter.Int64ObservableCounter(name, metric.WithDescription(description), metric.WithUnit("{call}"))
		keep(err)
		observe(c, func(o metric.Observer) { o.ObserveInt64(c, int64(value()), m.mode) })
	}
	counted(telemetry.MetricBackendRedundant, "backend calls that began while another for the same key was in flight",
		func() int { return service.Stats().Redundant })
	counted(telemetry.MetricBackendRepeated, "backend calls, not redundant, that began when the newest answer for the key was younger than half the TTL",
		func() int { return service.Stats().Repeated })

	exported, dropped := with(result(resultExported)), with(result(resultDropped))
	fate, err := meter.Int64ObservableCounter(telemetry.MetricSpans, metric.WithDescription("spans by what became of them"), metric.WithUnit("{span}"))
	keep(err)
	observe(fate, func(o metric.Observer) {
		spans := t.Spans()
		o.ObserveInt64(fate, int64(spans.Exported), exported)
		o.ObserveInt64(fate, int64(spans.Dropped), dropped)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("set up the metrics: %w", err)
	}
	return m, nil
}

type countedKey struct{}

// request returns a context for a request, which remembers what is counted of it.
func (m *instruments) request(ctx context.Context) context.Context {
	return context.WithValue(ctx, countedKey{}, &cache.Counts{})
}

// happened counts steps when they happen, in the goroutine of their request.
func (m *instruments) happened(ctx context.Context, steps cache.Counts) {
	for _, s := range m.steps {
		if n := s.of(steps); n > 0 {
			s.add(n)
		}
	}
	if counted, ok := ctx.Value(countedKey{}).(*cache.Counts); ok {
		counted.Add(steps)
	}
}

// response counts a request that is over, and those of its steps that only it knows of. The context holds its span, which
// becomes the exemplar.
func (m *instruments) response(ctx context.Context, r herd.Response) {
	counted, _ := ctx.Value(countedKey{}).(*cache.Counts)
	for _, s := range m.steps {
		if n := s.of(r.Counts) - s.of(*counted); n > 0 {
			s.add(n)
		}
	}
	m.requests[r.Outcome].add(1)
	m.requestDuration.Record(ctx, r.Elapsed.Seconds(), m.outcome[r.Outcome])
}

func (m *instruments) round() { m.rounds.add(1) }

// answered counts the end of a backend call.
func (m *instruments) answered(ctx context.Context, d time.Duration, result string) {
	m.answers[result].add(1)
	m.backendDuration.Record(ctx, d.Seconds(), m.result[result])
}

func (m *instruments) wait(ctx context.Context, d time.Duration) {
	m.waitDuration.Record(ctx, d.Seconds(), m.mode)
}

// Begin reports that the run is active.
func (b *Bridge) Begin(workers int) {
	b.metrics.active.Record(context.Background(), 1, b.metrics.mode)
	b.metrics.workers.Record(context.Background(), int64(workers), b.metrics.mode)
}

// Pause reports that the run is not active in this mode, for now.
func (b *Bridge) Pause() { b.metrics.active.Record(context.Background(), 0, b.metrics.mode) }

// Finish reports the end of the run: the ledger's exact latencies and the verdict.
func (b *Bridge) Finish(l herd.Ledger, v herd.Verdict) {
	m, ctx := b.metrics, context.Background()
	b.Pause()
	ok := int64(0)
	if v.OK {
		ok = 1
	}
	m.verdict.Record(ctx, ok, m.mode)
	for quantile, d := range map[string]time.Duration{
		"p50": l.Latency.P50, "p95": l.Latency.P95, "p99": l.Latency.P99, "max": l.Latency.Max,
	} {
		m.latency.Record(ctx, d.Seconds(), metric.WithAttributeSet(m.labels.Set(telemetry.Quantile.String(quantile))))
	}
}
