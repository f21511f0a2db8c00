// Package observe is the bridge from the domain to telemetry: decorators and probes that turn what happens into
// spans and metrics. The domain does not know of it.
package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// sliceSize is how many workers share one trace: Jaeger's page gets slow above about 2,000 spans, and a worker
// that waits for a fill of 250 ms makes about 15.
const sliceSize = 50

// Bridge observes one run, or one mode of it.
type Bridge struct {
	// Dashboard, if set, makes the address of the page that shows the run at a time; rounds are tied to it. Set it
	// before the first round.
	Dashboard func(from, to time.Time) string
	// TTL is how long values are cached: what is older is overdue. Set it before the first round.
	TTL time.Duration

	tracer  trace.Tracer
	metrics *instruments
	labels  telemetry.Labels
	run     string
	judge   herd.Judge

	mu        sync.Mutex     // guards all below
	waiters   map[string]int // by token, of the requests on their way
	traceIDs  [][]string
	unsampled int // traces
	links     int
}

// New returns a bridge to t for a run on a backend. The mode's judge says whether the invariant held in a round.
func New(t *telemetry.Telemetry, labels telemetry.Labels, run string, judge herd.Judge, service Backend) (*Bridge, error) {
	m, err := newInstruments(t, labels, service)
	if err != nil {
		return nil, err
	}
	return &Bridge{
		tracer:  t.TracerProvider.Tracer(telemetry.Service),
		metrics: m,
		labels:  labels,
		run:     run,
		judge:   judge,
		waiters: map[string]int{},
	}, nil
}

// TraceIDs returns the ids of the traces so far: a list for each round, an id for each slice that was sampled.
func (b *Bridge) TraceIDs() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.traceIDs
}

// Unsampled returns how many traces the sampler left out so far.
func (b *Bridge) Unsampled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unsampled
}

// Links returns how many links the spans have so far: waiters' to their winners, and slices' to slice 0.
func (b *Bridge) Links() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.links
}

// Observer returns next with telemetry: a root span for each slice of a round, a span and the metrics for each worker.
func (b *Bridge) Observer(next herd.Observer) herd.Observer { return observer{next, b} }

type observer struct {
	next herd.Observer
	*Bridge
}

func (o observer) Round(ctx context.Context, round herd.Round) (context.Context, func(herd.RoundSummary)) {
	ctx, end := o.next.Round(ctx, round)
	roots := o.startRoots(ctx, round)
	started := time.Now()
	return context.WithValue(ctx, rootsKey{}, roots), func(s herd.RoundSummary) {
		verdict := "invariant broken"
		switch v := o.judge(s.Ledger()); {
		case v.Unknown:
			verdict = "not known: a SET was not answered"
		case v.Invariant:
			verdict = "invariant held"
		}
		if o.Dashboard != nil {
			page := telemetry.Dashboard.String(o.Dashboard(started, time.Now()))
			for _, root := range roots.all() {
				root.SetAttributes(page)
			}
		}
		for _, root := range roots.all() {
			root.SetAttributes(telemetry.BackendCalls.Int(s.BackendCalls), telemetry.Expiries.Int(s.Expiries),
				telemetry.Waiters.Int(s.Outcomes[cache.Waited]), telemetry.Verdict.String(verdict))
			root.End()
		}
		o.metrics.round()
		end(s)
	}
}

// startRoots starts a trace for each slice of each process's workers, and links each to the first.
func (b *Bridge) startRoots(ctx context.Context, round herd.Round) roots {
	processes := max(1, round.Processes)
	all := roots{workers: round.Workers / processes, processes: make([][]trace.Span, processes)}
	slices := (all.workers + sliceSize - 1) / sliceSize
	ids := []string{} // empty, where the sampler took none: the next round keeps its number
	var first trace.SpanContext
	for i := range processes * slices {
		options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithAttributes(
			telemetry.Mode.String(b.labels.Mode), telemetry.Scenario.String(b.labels.Scenario), telemetry.Run.String(b.run), telemetry.Round.Int(round.Number),
			telemetry.Slice.Int(i), telemetry.Workers.Int(round.Workers))}
		if processes > 1 {
			options = append(options, trace.WithAttributes(telemetry.Process.Int(i/slices+1)))
		}
		if first.IsSampled() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: first}))
		}
		_, root := b.tracer.Start(ctx, telemetry.RoundSpan(b.labels.Mode), options...)
		if i == 0 {
			first = root.SpanContext()
		}
		all.processes[i/slices] = append(all.processes[i/slices], root)
		if root.SpanContext().IsSampled() {
			ids = append(ids, root.SpanContext().TraceID().String())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traceIDs = append(b.traceIDs, ids)
	if first.IsValid() { // else there are no traces, and no sampler
		b.unsampled += processes*slices - len(ids)
	}
	if first.IsSampled() {
		b.links += len(ids) - 1
	}
	return all
}

func (o observer) Worker(ctx context.Context, worker herd.Worker) (context.Context, func(*herd.Response)) {
	ctx, end := o.next.Worker(ctx, worker)
	if root := rootOf(ctx); root != nil {
		ctx = trace.ContextWithSpan(ctx, root)
	}
	about := []attribute.KeyValue{telemetry.Mode.String(o.labels.Mode), telemetry.Run.String(o.run), telemetry.Round.Int(worker.Round),
		telemetry.Number.Int(worker.Number)}
	if worker.Process > 0 {
		about = append(about, telemetry.Process.Int(worker.Process))
	}
	ctx, span := o.tracer.Start(ctx, telemetry.SpanWorker, trace.WithAttributes(about...))
	ctx = o.metrics.request(ctx)
	return ctx, func(r *herd.Response) {
		became := outcome(&r.Result)
		if r.Rechecked > 0 && r.Misses == 0 {
			became = append(became, telemetry.Overtaken.Bool(true))
		}
		span.SetAttributes(became...)
		fail(ctx, span, r.Err, r.Errors.Load)
		o.metrics.response(ctx, r, o.TTL)
		span.End()
		end(r)
	}
}

// outcome is what a request came to. It makes the winner findable: spans are shown in the order in which they began, and it
// need not be the first.
func outcome(r *cache.Result) []attribute.KeyValue {
	became := []attribute.KeyValue{telemetry.Outcome.String(string(r.Outcome))}
	if r.Acquired > 0 && r.BackendCalls > 0 {
		became = append(became, telemetry.Winner.Bool(true))
	}
	return became
}

// Store returns next with telemetry: the steps are counted as the strategy sees them. The spans of commands are the Redis
// client's; what only the domain knows is added here: which GET is the re-check, and which winner a waiter waits for.
func (b *Bridge) Store(next cache.Store) cache.Store { return store{next, b} }

type store struct {
	cache.Store
	*Bridge
}

func (s store) Get(ctx context.Context, key string) (string, bool, error) {
	why := cache.ReadOf(ctx)
	if why == cache.Recheck {
		ctx = telemetry.WithCommandAttributes(ctx, telemetry.Recheck.Bool(true))
	}
	value, found, err := s.Store.Get(ctx, key)
	s.got(ctx, why, found, err)
	return value, found, err
}

func (s store) GetTTL(ctx context.Context, key string) (string, time.Duration, bool, error) {
	value, left, found, err := s.Store.GetTTL(ctx, key)
	s.got(ctx, cache.First, found, err)
	return value, left, found, err
}

// got counts a GET.
func (s store) got(ctx context.Context, why cache.Read, found bool, err error) {
	var steps cache.Counts
	switch {
	case err != nil: // no reply
	case found:
		steps.Hits = 1
	default:
		steps.Misses = 1
	}
	if why == cache.Poll {
		steps.Polls = 1 // answered or not
	}
	if why == cache.Recheck {
		steps.Rechecked = steps.Hits
	}
	s.metrics.happened(ctx, steps)
}

func (s store) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := s.Store.Set(ctx, key, value, ttl)
	if err == nil && !found {
		s.metrics.happened(ctx, cache.Counts{SetsAbsent: 1})
	}
	return replaced, found, err
}

func (s store) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	stored, err := s.Store.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	if err == nil && stored.Stored && !stored.Found {
		s.metrics.happened(ctx, cache.Counts{SetsAbsent: 1})
	}
	return stored, err
}

func (s store) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := s.Store.Lock(ctx, key, token, ttl)
	switch {
	case err != nil: // it may be ours: the end of the request tells
	case holder == token:
		s.metrics.happened(ctx, cache.Counts{Acquired: 1})
	default:
		s.metrics.happened(ctx, cache.Counts{Held: 1})
	}
	if w, ok := ctx.Value(waitKey{}).(*waiting); ok && err == nil && holder != token {
		s.waitsFor(w, holder)
	}
	return holder, err
}

// Loader returns next with telemetry: a span for each backend call, counted when it begins and when it ends.
func (b *Bridge) Loader(next cache.Loader) cache.Loader { return loader{next, b} }

type loader struct {
	next cache.Loader
	*Bridge
}

func (l loader) Load(ctx context.Context, key string) (string, error) {
	ctx, span := l.tracer.Start(ctx, telemetry.SpanBackendCall, trace.WithSpanKind(trace.SpanKindClient))
	l.metrics.calls.add(1)
	started := time.Now()
	err := errPanic
	defer func() {
		fail(ctx, span, err, err)
		result := resultOK
		switch {
		case err != nil && ctx.Err() != nil, errors.Is(err, backend.ErrNoAnswer):
			result = resultUnknown
		case err != nil:
			result = resultError
		}
		l.metrics.answered(ctx, time.Since(started), result)
		span.End()
	}()
	var value string
	value, err = l.next.Load(ctx, key)
	return value, err
}

// errPanic is what a backend call came to that did not return.
var errPanic = errors.New("the backend call panicked")

// DescribeCall adds to the span of a backend call what the backend told of it. The context is the one that Load was called
// with.
func (b *Bridge) DescribeCall(ctx context.Context, c backend.Call) {
	describe(trace.SpanFromContext(ctx), c)
}

// Probe returns next with telemetry: the spans MISS and wait for fill.
func (b *Bridge) Probe(next cache.Probe) cache.Probe { return probe{next, b} }

type probe struct {
	next cache.Probe
	*Bridge
}

type (
	missKey struct{}
	waitKey struct{}

	// missing is a request between its miss and its answer. Only its own goroutine uses it, but for joined.
	missing struct {
		span   trace.Span
		token  string // of its latest lock attempt
		joined int    // callers that share its flight; the bridge's mutex guards it
	}
	// waiting is a request that waits for a fill.
	waiting struct {
		span   trace.Span
		linked []string // the tokens of the winners that it waited for
	}
)

func (p probe) Miss(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	ctx, end := p.next.Miss(ctx, key)
	ctx, span := p.tracer.Start(ctx, telemetry.SpanMiss)
	p.metrics.misses.add(1)
	m := &missing{span: span}
	return context.WithValue(ctx, missKey{}, m), func(r *cache.Result, err error) {
		became := outcome(r)
		if waiters := p.takeWaiters(m); r.Acquired > 0 || waiters > 0 {
			became = append(became, telemetry.Waiters.Int(waiters))
		}
		span.SetAttributes(became...)
		fail(ctx, span, err, r.Errors.Load)
		span.End()
		end(r, err)
	}
}

// Wake is an event on the span of the wait.
func (p probe) Wake(ctx context.Context, by cache.Wake) {
	p.next.Wake(ctx, by)
	if w, ok := ctx.Value(waitKey{}).(*waiting); ok {
		w.span.AddEvent(telemetry.EventWake, trace.WithAttributes(telemetry.By.String(string(by))))
	}
	p.metrics.happened(ctx, cache.WokenBy(by))
}

func (p probe) Flight(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	ctx, end := p.next.Flight(ctx, key)
	ctx = p.metrics.request(ctx)
	return ctx, func(r *cache.Result, err error) {
		p.metrics.rest(ctx, r.Counts)
		end(r, err)
	}
}

func (p probe) Join(ctx, miss context.Context) (context.Context, func(*cache.Result, error)) {
	ctx, end := p.next.Join(ctx, miss)
	ctx, span := p.tracer.Start(ctx, telemetry.SpanWait)
	p.joins(span, miss)
	return ctx, p.waited(ctx, span, end)
}

func (p probe) Wait(ctx context.Context, holder string) (context.Context, func(*cache.Result, error)) {
	ctx, end := p.next.Wait(ctx, holder)
	ctx, span := p.tracer.Start(ctx, telemetry.SpanWait)
	w := &waiting{span: span}
	p.waitsFor(w, holder)
	return context.WithValue(ctx, waitKey{}, w), p.waited(ctx, span, end)
}

// waited ends the span of a wait.
func (p probe) waited(ctx context.Context, span trace.Span, end func(*cache.Result, error)) func(*cache.Result, error) {
	return func(r *cache.Result, err error) {
		span.SetAttributes(telemetry.Polls.Int(r.Polls), telemetry.Waited.Float64(milliseconds(r.Waited)))
		fail(ctx, span, err, r.Errors.Load)
		span.End()
		p.metrics.wait(ctx, r.Waited)
		end(r, err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
