package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// Naming tells which command a context is for: its name (one of the spans), and its text with keys and values left out;
// both are "" for a command that is no part of the lab's story.
type Naming func(ctx context.Context) (name, text string)

// of is the name and the text of the command that is sent with ctx. The client sends its handshakes with the context of the
// command that waits for them. Of several that are sent together, the first counts.
func (n Naming) of(ctx context.Context, sent string) (name, text string) {
	name, text = n(ctx)
	first, _, _ := strings.Cut(sent, " ")
	if operation, _, _ := strings.Cut(text, " "); !strings.EqualFold(operation, first) {
		return "", ""
	}
	return name, text
}

// InstrumentRedis makes each command of the client of one server that has a name exactly one span: redisotel's, with that name,
// and with today's attribute names added. Dials, handshakes and other commands are left out. It also counts the commands, and
// reports the pool, by server.
func (t *Telemetry) InstrumentRedis(client *redis.Client, labels Labels, naming Naming) error {
	h, err := t.newCommandHook(client, labels, naming)
	if err != nil {
		return fmt.Errorf("instrument the Redis client: %w", err)
	}
	if t.tracers != nil {
		err := redisotel.InstrumentTracing(client,
			redisotel.WithTracerProvider(namedSpans{t.TracerProvider, naming}),
			redisotel.WithCallerEnabled(false),
			redisotel.WithDBStatement(false),
			redisotel.WithDialFilter(true),
			redisotel.WithCommandFilter(nil), // they would not see the context: namedSpans filters
			redisotel.WithCommandsFilter(nil),
		)
		if err != nil {
			return fmt.Errorf("instrument the Redis client: %w", err)
		}
	}
	client.AddHook(h) // after redisotel's, so inside its span
	if t.meter == nil {
		return nil
	}
	// The pool is reported by a client that shares it and sends nothing: redisotel's hook would make a new set of attributes for
	// each command, a fifth of all that a command's telemetry costs.
	if err := redisotel.InstrumentMetrics(client.WithTimeout(client.Options().ReadTimeout), redisotel.WithMeterProvider(t.MeterProvider),
		redisotel.WithSemConvCompliantMetrics(true), redisotel.WithAttributes(h.labels...), redisotel.WithPoolName("workers")); err != nil {
		return fmt.Errorf("report the Redis client's pool: %w", err)
	}
	return nil
}

// CommandCounter returns the counter of Redis commands, whoever asks for it.
func (t *Telemetry) CommandCounter() (metric.Int64Counter, error) {
	m := MetricRedisCommands.Info()
	return t.MeterProvider.Meter(Service).Int64Counter(string(m.Name), metric.WithDescription(m.What), metric.WithUnit(m.Unit))
}

type commandKey struct{}

// WithCommandAttributes adds attributes to the span of the next Redis command that is sent with this context.
func WithCommandAttributes(ctx context.Context, attributes ...attribute.KeyValue) context.Context {
	return context.WithValue(ctx, commandKey{}, attributes)
}

// Redirected tells of a command that a node of a cluster has sent on to another, on the command's span: that one answers.
func Redirected(ctx context.Context, word, addr string) {
	span := trace.SpanFromContext(ctx)
	span.AddEvent(word, trace.WithAttributes(address(addr)...))
	span.SetAttributes(address(addr)...)
}

// namedSpans has spans for the commands that have a name, and under that name.
type namedSpans struct {
	trace.TracerProvider
	naming Naming
}

// Tracer implements [trace.TracerProvider].
func (p namedSpans) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return namedTracer{p.TracerProvider.Tracer(name, options...), p.naming}
}

type namedTracer struct {
	trace.Tracer
	naming Naming
}

// Start implements [trace.Tracer]. The name that redisotel gives is the command's on the wire, and what its options say the
// hook says again, with all the rest at once.
func (t namedTracer) Start(ctx context.Context, sent string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name, _ := t.naming.of(ctx, strings.TrimPrefix(sent, "redis.pipeline ")); name != "" {
		return t.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	}
	return ctx, nooptrace.Span{}
}

// commandHook runs inside redisotel's span. What does not change from command to command is made once.
type commandHook struct {
	naming   Naming
	labels   []attribute.KeyValue
	server   []attribute.KeyValue
	system   []attribute.KeyValue
	commands metric.Int64Counter
	counted  map[string]metric.MeasurementOption // by command
	useTime  metric.Float64Histogram
	used     metric.MeasurementOption
	about    sync.Map // []attribute.KeyValue, by a command's text: what all spans of that text say
}

func (t *Telemetry) newCommandHook(client *redis.Client, labels Labels, naming Naming) (*commandHook, error) {
	o := client.Options()
	node := Node.String(o.Addr)
	h := &commandHook{
		naming:  naming,
		labels:  []attribute.KeyValue{Mode.String(labels.Mode), Scenario.String(labels.Scenario), node},
		server:  address(o.Addr),
		system:  []attribute.KeyValue{oldSystem, semconv.DBSystemNameRedis, namespace(o.DB)},
		counted: map[string]metric.MeasurementOption{},
		used:    metric.WithAttributeSet(labels.Set(node)),
	}
	var err, err2 error
	h.commands, err = t.CommandCounter()
	m := MetricPoolUseTime.Info()
	h.useTime, err2 = t.MeterProvider.Meter(Service).Float64Histogram(string(m.Name), metric.WithDescription(m.What), metric.WithUnit(m.Unit),
		metric.WithExplicitBucketBoundaries(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000)) // for a Redis nearby
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	for _, name := range []string{SpanGet, SpanLock, SpanSet, SpanDel, SpanStoreAndUnlock, SpanPublish} {
		h.counted[name] = metric.WithAttributeSet(labels.Set(Command.String(name), node))
		h.commands.Add(context.Background(), 0, h.counted[name])
	}
	return h, nil
}

// oldSystem is what semconv.DBSystemNameRedis was called before; redisotel says it.
var oldSystem = attribute.String("db.system", "redis")

// address is a server's, as attributes.
func address(addr string) []attribute.KeyValue {
	host, text, err := net.SplitHostPort(addr)
	if err != nil { // a socket's path
		return []attribute.KeyValue{semconv.ServerAddress(addr)}
	}
	port, _ := strconv.Atoi(text)
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(port)}
}

// ProcessHook implements [redis.Hook].
func (h *commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.watch(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements [redis.Hook]: what is sent together is one command with one name.
func (h *commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.watch(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func (h *commandHook) watch(ctx context.Context, cmds []redis.Cmder, send func() error) error {
	cmd := cmds[0]
	name, text := h.naming.of(ctx, cmd.Name())
	if name == "" {
		return send()
	}
	h.commands.Add(ctx, 1, h.counted[name])
	began := time.Now()
	err := send()
	h.useTime.Record(ctx, float64(time.Since(began))/float64(time.Millisecond), h.used)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		extra, _ := ctx.Value(commandKey{}).([]attribute.KeyValue)
		about := h.aboutOf(cmd, text, span)
		span.SetAttributes(answer(name, cmd, err)...) // the few first: the span's room grows but once to what is needed
		span.SetAttributes(left(cmds, err)...)
		span.SetAttributes(extra...)
		span.SetAttributes(about...)
	}
	return err
}

// aboutOf is what all spans of commands with this text say, the server at the end: it is left out where the span says already
// that the command was sent on to another.
func (h *commandHook) aboutOf(cmd redis.Cmder, text string, span trace.Span) []attribute.KeyValue {
	known, ok := h.about.Load(text)
	if !ok {
		known = slices.Concat(h.system, []attribute.KeyValue{semconv.DBOperationName(strings.ToUpper(cmd.Name())), semconv.DBQueryText(text)}, h.server)
		h.about.Store(text, known)
	}
	about := known.([]attribute.KeyValue)
	if s, ok := span.(sdktrace.ReadOnlySpan); ok && len(s.Attributes()) > 0 {
		return about[:len(about)-len(h.server)]
	}
	return about
}

// left is how long the value has left, if that was asked with it.
func left(cmds []redis.Cmder, err error) []attribute.KeyValue {
	pttl, ok := cmds[len(cmds)-1].(*redis.DurationCmd)
	switch {
	case !ok || err != nil:
		return nil
	case pttl.Val() == -1: // as the client says never
		return []attribute.KeyValue{PTTL.Int(-1)}
	}
	return []attribute.KeyValue{PTTL.Int64(pttl.Val().Milliseconds())}
}

// answer is what the reply means.
func answer(name string, cmd redis.Cmder, err error) []attribute.KeyValue {
	one := func(a attribute.KeyValue) []attribute.KeyValue { return []attribute.KeyValue{a} }
	absent := errors.Is(err, redis.Nil)
	if err != nil && !absent {
		return one(semconv.ErrorTypeKey.String(ErrorType(err)))
	}
	switch name {
	case SpanGet:
		return one(CacheHit.Bool(!absent))
	case SpanLock: // nil, or one's own token after a lost reply
		return one(LockAcquired.Bool(absent || reply(cmd) == cmd.Args()[2]))
	case SpanSet:
		return one(EndedCycle.Bool(absent))
	case SpanDel:
		return one(LockReleased.Bool(reply(cmd) == int64(1)))
	case SpanStoreAndUnlock: // stored, released, what was replaced
		if r, ok := reply(cmd).([]any); ok && len(r) == 3 {
			stored := r[0] == int64(1)
			return []attribute.KeyValue{Stored.Bool(stored), EndedCycle.Bool(stored && r[2] == nil), LockReleased.Bool(r[1] == int64(1))}
		}
	}
	return nil
}

func reply(cmd redis.Cmder) any {
	if c, ok := cmd.(*redis.Cmd); ok {
		return c.Val()
	}
	return nil
}

// OtherError is the type of an error of no known kind, in the convention's word.
const OtherError = "_OTHER"

// ErrorType is what kind of error err is, in one of few words, as the convention of error.type wants it.
func ErrorType(err error) string {
	network := net.Error(nil)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, redis.ErrPoolTimeout):
		return "timeout"
	case errors.As(err, new(redis.Error)):
		return "redis"
	case network != nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, redis.ErrClosed):
		return "connection"
	}
	return OtherError
}

// DialHook implements [redis.Hook].
func (h *commandHook) DialHook(next redis.DialHook) redis.DialHook { return next }
