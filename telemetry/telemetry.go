// Package telemetry sets OpenTelemetry up for one run: traces and metrics, both counted, with one Shutdown. It
// knows OpenTelemetry and the Redis client's instrumentation, and nothing of the lab but the names in names.go.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// Switch is the user's wish for telemetry.
type Switch string

// The wishes.
const (
	Auto Switch = "auto" // where somebody listens
	On   Switch = "on"   // nobody listening is an error
	Off  Switch = "off"
)

// ParseSwitch reads auto, on or off.
func ParseSwitch(text string) (Switch, error) {
	switch s := Switch(text); s {
	case Auto, On, Off:
		return s, nil
	}
	return "", errors.New("want auto, on or off")
}

// Options say what to set up.
type Options struct {
	Switch   Switch
	Run      string // the run's id, cachelab.run; "" for none, or many
	Instance string // service.instance.id, unique to the process
	Version  string
	// Lookup is os.LookupEnv: the OTEL_* variables are obeyed.
	Lookup func(string) (string, bool)
	// Console is where the exporters of OTEL_*_EXPORTER=console write.
	Console io.Writer
	// Spans and Reader, if set, get what the exporters get, and are there without any receiver.
	Spans  sdktrace.SpanProcessor
	Reader sdkmetric.Reader
	// Capture, if set, gets the spans too.
	Capture *Capture
	// WithoutRuntime leaves the metrics of the Go runtime out: another Telemetry of this process reports them.
	WithoutRuntime bool
	// WithoutMetrics leaves all metrics out.
	WithoutMetrics bool
	// ByRun counts the spans of each run, for a service that many runs share: see [Telemetry.SpansOf].
	ByRun bool
}

// processors are those that need no receiver.
func (o Options) processors() (all []sdktrace.SpanProcessor) {
	if o.Spans != nil {
		all = append(all, o.Spans)
	}
	if o.Capture != nil {
		all = append(all, o.Capture)
	}
	return all
}

const (
	// queueSize holds what 10,000 workers make in a round, about 200,000 spans. The batch processor's own
	// default of 2,048 drops most of a herd, silently. An empty place costs 16 bytes.
	queueSize = 1 << 19
	batchSize = 2048
	batchWait = 200 * time.Millisecond
	// pushInterval is the second of the dashboards. OTEL_METRIC_EXPORT_INTERVAL changes it.
	pushInterval = time.Second
	// How long a shutdown waits for a receiver that has stopped accepting; together less than 2 s.
	spansPatience   = time.Second
	metricsPatience = 600 * time.Millisecond
)

// Telemetry is the telemetry of one run. Make one with [Start], and Shutdown it.
type Telemetry struct {
	TracerProvider trace.TracerProvider
	// PriceService makes the spans of the backend, which is a service of its own, also inside this process. They follow
	// their parents' sampling, go where the lab's spans go, and are counted with them.
	PriceService  trace.TracerProvider
	MeterProvider metric.MeterProvider
	// Notice is for the user: what was left out, or does not fit the dashboards, and why; "" if nothing.
	Notice string

	options   Options
	spans     *counter // nil without export of traces
	byRun     *byRun   // nil but with ByRun
	others    atomic.Pointer[SpanCounts]
	processor sdktrace.SpanProcessor
	tracers   []*sdktrace.TracerProvider // none without traces
	meter     *sdkmetric.MeterProvider   // nil without metrics
	metrics   *metricCounter             // nil without export of metrics
	absent    []string                   // what nobody takes
	traceable bool                       // spans go to an OTLP receiver
	patience  time.Duration              // with a receiver of spans that has stopped accepting
}

// Start sets telemetry up. With Off, or OTEL_SDK_DISABLED, nothing is recorded but for Options.Spans, Capture and Reader.
// The error says what to change; it comes before anything is sent.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	env := lookup(o.Lookup)
	t := &Telemetry{TracerProvider: nooptrace.NewTracerProvider(), PriceService: nooptrace.NewTracerProvider(),
		MeterProvider: noopmetric.NewMeterProvider(), options: o}
	spanExporter, metricExporter, err := t.exporters(ctx, env, o)
	if err != nil {
		return nil, err
	}
	if spanExporter == nil && metricExporter == nil && o.processors() == nil && o.Reader == nil {
		return t, nil
	}
	about, err := newResource(ctx, o)
	if err != nil {
		return nil, err
	}
	if extra := o.processors(); spanExporter != nil || extra != nil {
		if err := t.startTraces(about, spanExporter, extra); err != nil {
			return nil, err
		}
	}
	if metricExporter != nil || o.Reader != nil {
		if err := t.startMetrics(about, env, metricExporter, o.Reader); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// exporters returns those that are asked for and whose receivers accept; nil stands for none.
func (t *Telemetry) exporters(ctx context.Context, env lookup, o Options) (sdktrace.SpanExporter, sdkmetric.Exporter, error) {
	if o.Switch == Off || strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") {
		return nil, nil, nil
	}
	spans, spansTo, err := newSpanExporter(ctx, env, o.Console)
	var metrics sdkmetric.Exporter
	var metricsTo *receiver
	var err2 error
	if !o.WithoutMetrics {
		metrics, metricsTo, err2 = newMetricExporter(ctx, env, o.Console)
	}
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, err
	}
	spansThere, err := t.reach(ctx, o.Switch, spansTo)
	metricsThere, err2 := t.reach(ctx, o.Switch, metricsTo)
	var notices []string
	if len(t.absent) > 0 {
		notices = append(notices, "telemetry: nobody takes "+strings.Join(t.absent, ", ")+" (make up)")
	}
	if metricsThere && metricsTo != nil && metricsTo.notice != "" {
		notices = append(notices, metricsTo.notice)
	}
	t.Notice = strings.Join(notices, "\n")
	t.traceable = spansThere && spansTo != nil
	t.patience = max(spansPatience, traces.timeout(env))
	if !spansThere {
		spans = nil
	}
	if !metricsThere {
		metrics = nil
	}
	return spans, metrics, errors.Join(err, err2)
}

// reach finds out whether a receiver accepts. A receiver that is absent is an error with On and a notice with
// Auto; one that answers wrongly is an error if the user named it.
func (t *Telemetry) reach(ctx context.Context, s Switch, r *receiver) (bool, error) {
	if r == nil {
		return true, nil // none is needed
	}
	problem := r.probe(ctx)
	switch {
	case problem == nil:
		return true, nil
	case s == On, !problem.absent && r.variable != "":
		return false, problem.err
	}
	t.absent = append(t.absent, fmt.Sprintf("%s at %s", r.signal, r.endpoint))
	return false, nil
}

func newResource(ctx context.Context, o Options) (*resource.Resource, error) {
	own := []attribute.KeyValue{semconv.ServiceInstanceID(o.Instance)}
	if o.Run != "" {
		own = append(own, ResourceRun.String(o.Run))
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(Service), semconv.ServiceVersion(o.Version)),
		resource.WithHost(), resource.WithProcessPID(), resource.WithProcessExecutableName(),
		resource.WithProcessRuntimeName(), resource.WithProcessRuntimeVersion(), resource.WithTelemetrySDK(),
		resource.WithFromEnv(),          // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over the above
		resource.WithAttributes(own...), // but not over these
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe this process for telemetry: %w", err)
	}
	return about, nil
}

func (t *Telemetry) startTraces(about *resource.Resource, exporter sdktrace.SpanExporter, extra []sdktrace.SpanProcessor) error {
	aboutService, err := resource.Merge(about, resource.NewSchemaless(semconv.ServiceName(PriceService),
		semconv.ServiceInstanceID(t.options.Instance+"-"+PriceService)))
	if err != nil {
		return fmt.Errorf("describe the %s for telemetry: %w", PriceService, err)
	}
	var options []sdktrace.TracerProviderOption
	if exporter != nil && t.options.ByRun {
		t.byRun = newByRun(exporter)
		exporter = t.byRun
		options = append(options, sdktrace.WithSpanProcessor(t.byRun))
	}
	if exporter != nil {
		t.spans = &counter{next: exporter}
		t.processor = sdktrace.NewBatchSpanProcessor(t.spans, batching(t.options.Lookup)...)
		options = append(options, sdktrace.WithSpanProcessor(t.spans), sdktrace.WithSpanProcessor(t.processor))
	}
	for _, processor := range extra {
		options = append(options, sdktrace.WithSpanProcessor(processor))
	}
	// OTEL_TRACES_SAMPLER is for the lab: whether a call has spans is decided where it comes from.
	lab := sdktrace.NewTracerProvider(slices.Concat(options, []sdktrace.TracerProviderOption{sdktrace.WithResource(about)})...)
	service := sdktrace.NewTracerProvider(slices.Concat(options, []sdktrace.TracerProviderOption{sdktrace.WithResource(aboutService),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))})...)
	t.tracers = []*sdktrace.TracerProvider{lab, service}
	t.TracerProvider, t.PriceService = lab, service
	return nil
}

// batching are the lab's own settings, where no variable says otherwise.
func batching(env lookup) (own []sdktrace.BatchSpanProcessorOption) {
	for variable, option := range map[string]sdktrace.BatchSpanProcessorOption{
		"OTEL_BSP_MAX_QUEUE_SIZE":        sdktrace.WithMaxQueueSize(queueSize),
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": sdktrace.WithMaxExportBatchSize(batchSize),
		"OTEL_BSP_SCHEDULE_DELAY":        sdktrace.WithBatchTimeout(batchWait),
	} {
		if env.get(variable) == "" {
			own = append(own, option)
		}
	}
	return own
}

func (t *Telemetry) startMetrics(about *resource.Resource, env lookup, exporter sdkmetric.Exporter, extra sdkmetric.Reader) error {
	options := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if exporter != nil {
		t.metrics = &metricCounter{Exporter: newStarts(exporter)}
		var every []sdkmetric.PeriodicReaderOption
		if env.get("OTEL_METRIC_EXPORT_INTERVAL") == "" {
			every = append(every, sdkmetric.WithInterval(pushInterval))
		}
		if env.get("OTEL_METRIC_EXPORT_TIMEOUT") == "" {
			every = append(every, sdkmetric.WithTimeout(metrics.timeout(env)))
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(t.metrics, every...)))
	}
	if extra != nil {
		options = append(options, sdkmetric.WithReader(extra))
	}
	t.meter = sdkmetric.NewMeterProvider(options...)
	t.MeterProvider = t.meter
	if t.options.WithoutRuntime {
		return nil
	}
	if err := runtime.Start(runtime.WithMeterProvider(t.meter), runtime.WithMinimumReadMemStatsInterval(pushInterval)); err != nil {
		return fmt.Errorf("start the Go runtime's metrics: %w", err)
	}
	return nil
}

// Buckets for durations in seconds: from 0.5 ms, a command, to 10 s, the lock's TTL. From 0.2 to 2 s, where a fill and
// the queue of a herd are, each is less than 5 % above the one before, and so is the error of a quantile.
func Buckets() []float64 {
	all := []float64{0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175}
	for bound := 0.2 / 1.045; bound < 2; bound *= 1.045 {
		all = append(all, math.Round(bound*1000)/1000)
	}
	return append(all, 2, 2.5, 3, 4, 5, 7.5, 10)
}

// Push sends the metrics as they are now: the zeros before the first round. A receiver that does not take them is
// told of at the end.
func (t *Telemetry) Push(ctx context.Context) {
	if t.metrics == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if err := t.meter.ForceFlush(limited); err != nil {
		t.metrics.failure.Store(&err)
	}
}

// Spans returns what became of the spans. It is final after [Telemetry.FlushSpans].
func (t *Telemetry) Spans() SpanCounts {
	if t.spans == nil {
		return SpanCounts{}
	}
	n := t.spans.counts()
	if more := t.others.Load(); more != nil {
		n.Ended += more.Ended
		n.Exported += more.Exported
		n.Dropped += more.Dropped
	}
	return n
}

// SpansElsewhere are those of another process that belong to the run and that nobody else reports. They count with ours.
func (t *Telemetry) SpansElsewhere(n SpanCounts) { t.others.Store(&n) }

// Traceable reports whether the traces are sent to somebody who can show them: not to a console.
func (t *Telemetry) Traceable() bool { return t.traceable }

// FlushSpans exports what is left of the spans and ends tracing. A receiver that has stopped accepting is given
// up after a moment.
func (t *Telemetry) FlushSpans(ctx context.Context) error {
	if t.spans == nil {
		return nil
	}
	err := t.spans.flush(ctx, t.processor, t.patience)
	if failure := t.spans.err(); failure != nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("export spans: %s", firstLine(err))
	}
	return nil
}

// Shutdown flushes the spans, then the metrics, and ends both. It takes no longer than a moment when the
// receivers have stopped answering. The error tells what was not delivered; it is no reason to fail the run.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	if t.tracers != nil {
		errs = append(errs, t.FlushSpans(ctx))
		limited, cancel := context.WithTimeout(ctx, metricsPatience)
		defer cancel()
		for _, one := range t.tracers {
			errs = append(errs, one.Shutdown(limited))
		}
		if t.spans != nil {
			errs = append(errs, t.spans.next.Shutdown(limited))
		}
	}
	if t.meter != nil {
		limited, cancel := context.WithTimeout(ctx, metricsPatience)
		defer cancel()
		err := t.meter.Shutdown(limited)
		if t.metrics != nil && t.metrics.err() != nil {
			err = fmt.Errorf("export metrics: %s", firstLine(t.metrics.err()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// metricCounter remembers a failed export, which the periodic reader would only log.
type metricCounter struct {
	sdkmetric.Exporter
	failure atomic.Pointer[error] // of the latest export; nil when it was accepted
}

// Export implements [sdkmetric.Exporter].
func (c *metricCounter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	if err := c.Exporter.Export(ctx, data); err != nil {
		c.failure.Store(&err)
	} else {
		c.failure.Store(nil)
	}
	return nil
}

func (c *metricCounter) err() error {
	if failure := c.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// DiscardLog keeps OpenTelemetry's own log off the terminal, and the line that net/http logs when a gRPC server
// answers it: what matters comes back as errors. The settings are the process's.
func DiscardLog() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	log.SetOutput(io.Discard)
}

// namespace is the number of the database that a Redis client is connected to, as an attribute.
func namespace(db int) attribute.KeyValue { return semconv.DBNamespace(strconv.Itoa(db)) }
