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
	steps     []step
	misses    series
	calls     series
	answers   map[string]series
	requests  map[cache.Outcome]series
	refreshes map[string]series
	rounds    series

	requestDuration, waitDuration, backendDuration, overdue metric.Float64Histogram
	commands                                                metric.Int64Counter
	outcome                                                 map[cache.Outcome]metric.MeasurementOption
	result                                                  map[string]metric.MeasurementOption
	mode                                                    metric.MeasurementOption

	active, verdict, workers metric.Int64Gauge
	latency                  metric.Float64Gauge
	labels                   telemetry.Labels
}

// step is the series of a step, and how to find its count in a request's.
type step struct {
	series
	of func(*cache.Counts) int
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
	resultFilled, resultRefused   = "filled", "refused"
	resultFailed                  = "failed"
)

func newInstruments(t *telemetry.Telemetry, labels telemetry.Labels, service Backend) (*instruments, error) {
	meter := t.MeterProvider.Meter(telemetry.Service)
	m := &instruments{
		labels:    labels,
		answers:   map[string]series{},
		requests:  map[cache.Outcome]series{},
		refreshes: map[string]series{},
		outcome:   map[cache.Outcome]metric.MeasurementOption{},
		result:    map[string]metric.MeasurementOption{},
	}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(labels.Set(more...))
	}
	// new makes a series and reports it as 0: the first increment must not be the first sample.
	newSeries := func(of telemetry.Metric, more ...attribute.KeyValue) series {
		i := of.Info()
		c, err := meter.Int64Counter(string(of), metric.WithDescription(i.What), metric.WithUnit(i.Unit))
		keep(err)
		s := series{c, with(more...)}
		s.add(0)
		return s
	}
	count := func(steps func(*cache.Counts) int, of telemetry.Metric, more ...attribute.KeyValue) {
		m.steps = append(m.steps, step{newSeries(of, more...), steps})
	}
	result := telemetry.Result.String

	count(func(c *cache.Counts) int { return c.Hits }, telemetry.MetricGets, result(resultHit))
	count(func(c *cache.Counts) int { return c.Misses }, telemetry.MetricGets, result(resultMiss))
	count(func(c *cache.Counts) int { return c.Acquired }, telemetry.MetricLockAttempts, result(resultAcquired))
	count(func(c *cache.Counts) int { return c.Held }, telemetry.MetricLockAttempts, result(resultHeld))
	count(func(c *cache.Counts) int { return c.Rechecked }, telemetry.MetricLockRechecks)
	count(func(c *cache.Counts) int { return c.Released }, telemetry.MetricLockReleases, result(resultReleased))
	count(func(c *cache.Counts) int { return c.Lost }, telemetry.MetricLockReleases, result(resultLost))
	count(func(c *cache.Counts) int { return c.ReleasesRefused + c.ReleasesUnanswered }, telemetry.MetricLockReleases, result(resultError))
	count(func(c *cache.Counts) int { return c.Timeouts }, telemetry.MetricLockTimeouts)
	count(func(c *cache.Counts) int { return c.Polls }, telemetry.MetricPolls)
	count(func(c *cache.Counts) int { return c.SetsAbsent }, telemetry.MetricExpiries)
	by := func(w cache.Wake) attribute.KeyValue { return telemetry.By.String(string(w)) }
	count(func(c *cache.Counts) int { return c.WokenByMessage }, telemetry.MetricWakes, by(cache.Message))
	count(func(c *cache.Counts) int { return c.WokenByLook }, telemetry.MetricWakes, by(cache.Look))
	count(func(c *cache.Counts) int { return c.WokenByReconnect }, telemetry.MetricWakes, by(cache.Reconnect))
	m.misses = newSeries(telemetry.MetricMisses)
	m.calls = newSeries(telemetry.MetricBackendCalls)
	for _, r := range []string{resultOK, resultError, resultUnknown} {
		m.answers[r] = newSeries(telemetry.MetricBackendAnswers, result(r))
		m.result[r] = with(result(r))
	}
	for _, r := range []string{resultFilled, resultRefused, resultFailed} {
		m.refreshes[r] = newSeries(telemetry.MetricRefreshes, result(r))
	}
	m.rounds = newSeries(telemetry.MetricRounds)
	for _, o := range cache.Outcomes() {
		outcome := telemetry.Outcome.String(string(o))
		m.requests[o] = newSeries(telemetry.MetricRequests, outcome)
		m.outcome[o] = with(outcome)
	}
	m.mode = with()

	histogram := func(of telemetry.Metric) metric.Float64Histogram {
		i := of.Info()
		h, err := meter.Float64Histogram(string(of), metric.WithDescription(i.What), metric.WithUnit(i.Unit),
			metric.WithExplicitBucketBoundaries(telemetry.Buckets()...))
		keep(err)
		return h
	}
	m.requestDuration = histogram(telemetry.MetricRequestDuration)
	m.waitDuration = histogram(telemetry.MetricWaitDuration)
	m.backendDuration = histogram(telemetry.MetricBackendDuration)
	m.overdue = histogram(telemetry.MetricValueOverdue)

	gauge := func(of telemetry.Metric) metric.Int64Gauge {
		i := of.Info()
		g, err := meter.Int64Gauge(string(of), metric.WithDescription(i.What), metric.WithUnit(i.Unit))
		keep(err)
		return g
	}
	m.active = gauge(telemetry.MetricRunActive)
	m.verdict = gauge(telemetry.MetricRunVerdict)
	m.workers = gauge(telemetry.MetricWorkers)
	latency := telemetry.MetricRunLatency.Info()
	var err error
	m.latency, err = meter.Float64Gauge(string(latency.Name), metric.WithDescription(latency.What), metric.WithUnit(latency.Unit))
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
	observed := func(of telemetry.Metric, value func() int) {
		i := of.Info()
		g, err := meter.Int64ObservableGauge(string(of), metric.WithDescription(i.What), metric.WithUnit(i.Unit))
		keep(err)
		observe(g, func(o metric.Observer) { o.ObserveInt64(g, int64(value()), m.mode) })
	}
	observed(telemetry.MetricBackendPeak, service.RecentPeak)
	observed(telemetry.MetricBackendQueued, func() int { return service.Stats().Queued })

	counter := func(of telemetry.Metric) metric.Int64ObservableCounter {
		i := of.Info()
		c, err := meter.Int64ObservableCounter(string(of), metric.WithDescription(i.What), metric.WithUnit(i.Unit))
		keep(err)
		return c
	}
	counted := func(of telemetry.Metric, value func() int) {
		c := counter(of)
		observe(c, func(o metric.Observer) { o.ObserveInt64(c, int64(value()), m.mode) })
	}
	counted(telemetry.MetricBackendRedundant, func() int { return service.Stats().Redundant })
	counted(telemetry.MetricBackendRepeated, func() int { return service.Stats().Repeated })

	exported, dropped := with(result(resultExported)), with(result(resultDropped))
	fate := counter(telemetry.MetricSpans)
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

type tallyKey struct{}

// tally remembers what is counted of a request: its own goroutine uses it.
type tally struct {
	counted cache.Counts
	steps   cache.Counts // those of one count, here as they are passed by their address
}

// request returns a context for a request, which remembers what is counted of it.
func (m *instruments) request(ctx context.Context) context.Context {
	return context.WithValue(ctx, tallyKey{}, &tally{})
}

// happened counts steps when they happen, in the goroutine of their request.
func (m *instruments) happened(ctx context.Context, steps cache.Counts) {
	t, ok := ctx.Value(tallyKey{}).(*tally)
	if !ok {
		t = &tally{}
	}
	t.steps = steps
	for _, s := range m.steps {
		if n := s.of(&t.steps); n > 0 {
			s.add(n)
		}
	}
	t.counted.Add(steps)
}

// response counts a request that is over, and those of its steps that only it knows of. The context holds its span, which
// becomes the exemplar. A value that it was served is overdue when it is older than the TTL.
func (m *instruments) response(ctx context.Context, r *herd.Response, ttl time.Duration) {
	m.rest(ctx, r.Counts)
	m.requests[r.Outcome].add(1)
	m.requestDuration.Record(ctx, r.Elapsed.Seconds(), m.outcome[r.Outcome])
	m.served(ctx, r, ttl)
}

// served counts how overdue the value was that the request was served.
func (m *instruments) served(ctx context.Context, r *herd.Response, ttl time.Duration) {
	if age, known := r.Age(); known {
		m.overdue.Record(ctx, max(0, age-ttl).Seconds(), m.mode)
	}
}

// rest counts those of all steps that were not counted when they happened.
func (m *instruments) rest(ctx context.Context, all cache.Counts) {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	t.steps = all
	for _, s := range m.steps {
		if n := s.of(&t.steps) - s.of(&t.counted); n > 0 {
			s.add(n)
		}
	}
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
