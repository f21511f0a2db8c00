package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// InstrumentRedis makes each command of the client that is part of the lab's story exactly one span: redisotel's,
// renamed, with today's attribute names added. Dials, handshakes and other commands are left out. It also
// counts the commands, and reports the pool.
func (t *Telemetry) InstrumentRedis(client *redis.Client, labels Labels) error {
	commands, err := t.CommandCounter()
	if err != nil {
		return fmt.Errorf("instrument the Redis client: %w", err)
	}
	h := &commandHook{commands: commands, namespace: namespace(client.Options().DB), counted: map[string]metric.MeasurementOption{}}
	for _, name := range []string{SpanGet, SpanLock, SpanSet, SpanDel} {
		h.counted[name] = metric.WithAttributeSet(labels.Set(Command.String(name)))
		commands.Add(context.Background(), 0, h.counted[name])
	}
	if t.tracer != nil {
		err := redisotel.InstrumentTracing(client,
			redisotel.WithTracerProvider(t.TracerProvider),
			redisotel.WithCallerEnabled(false),
			redisotel.WithDBStatement(false),
			redisotel.WithDialFilter(true),
			redisotel.WithCommandFilter(func(cmd redis.Cmder) bool { return spanName(cmd) == "" }),
			redisotel.WithCommandsFilter(func([]redis.Cmder) bool { return true }), // handshakes come as pipelines
		)
		if err != nil {
			return fmt.Errorf("instrument the Redis client: %w", err)
		}
	}
	client.AddHook(h) // after redisotel's, so inside its span
	if t.meter == nil {
		return nil
	}
	if err := redisotel.InstrumentMetrics(client, redisotel.WithMeterProvider(t.MeterProvider),
		redisotel.WithSemConvCompliantMetrics(true), redisotel.WithAttributes(Mode.String(labels.Mode), Scenario.String(labels.Scenario)), redisotel.WithPoolName("workers")); err != nil {
		return fmt.Errorf("report the Redis client's pool: %w", err)
	}
	return nil
}

// CommandCounter returns the counter of Redis commands, whoever asks for it.
func (t *Telemetry) CommandCounter() (metric.Int64Counter, error) {
	return t.MeterProvider.Meter(Service).Int64Counter(MetricRedisCommands,
		metric.WithDescription("Redis commands that the workers sent"), metric.WithUnit("{command}"))
}

type commandKey struct{}

// WithCommandAttributes adds attributes to the span of the next Redis command that is sent with this context.
func WithCommandAttributes(ctx context.Context, attributes ...attribute.KeyValue) context.Context {
	return context.WithValue(ctx, commandKey{}, attributes)
}

// spanName is what the command is called in a trace; "" if it is no part of the story.
func spanName(cmd redis.Cmder) string {
	switch cmd.Name() {
	case "get":
		return SpanGet
	case "eval":
		return SpanDel
	case "set":
		if takesLock(cmd) {
			return SpanLock
		}
		return SpanSet
	}
	return ""
}

// takesLock tells SET key token NX from SET key value.
func takesLock(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 3 && args[3] == "NX"
}

// commandHook runs inside redisotel's span.
type commandHook struct {
	commands  metric.Int64Counter
	counted   map[string]metric.MeasurementOption // by command
	namespace attribute.KeyValue
}

// queryText are the commands with their values left out.
var queryText = map[string]string{
	SpanGet:  "GET ?",
	SpanLock: "SET ? ? NX GET PX ?",
	SpanSet:  "SET ? ? GET PX ?",
	SpanDel:  "EVAL ? 1 ? ?",
}

// ProcessHook implements [redis.Hook].
func (h *commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := spanName(cmd)
		if name == "" {
			return next(ctx, cmd)
		}
		h.commands.Add(ctx, 1, h.counted[name])
		span := trace.SpanFromContext(ctx)
		if !span.IsRecording() {
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		extra, _ := ctx.Value(commandKey{}).([]attribute.KeyValue)
		span.SetName(name)
		span.SetAttributes(append([]attribute.KeyValue{
			semconv.DBSystemNameRedis,
			semconv.DBOperationName(strings.ToUpper(cmd.Name())),
			semconv.DBQueryText(queryText[name]),
			h.namespace,
			answer(name, cmd, err),
		}, extra...)...)
		return err
	}
}

// answer is what the reply means.
func answer(name string, cmd redis.Cmder, err error) attribute.KeyValue {
	absent := errors.Is(err, redis.Nil)
	if err != nil && !absent {
		return semconv.ErrorTypeKey.String(errorType(err))
	}
	switch name {
	case SpanGet:
		return CacheHit.Bool(!absent)
	case SpanLock: // nil, or one's own token after a lost reply
		return LockAcquired.Bool(absent || reply(cmd) == cmd.Args()[2])
	case SpanSet:
		return EndedCycle.Bool(absent)
	}
	return LockReleased.Bool(reply(cmd) == int64(1))
}

func reply(cmd redis.Cmder) any {
	if c, ok := cmd.(*redis.Cmd); ok {
		return c.Val()
	}
	return nil
}

// errorType is one of few words, as the convention wants it.
func errorType(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, new(redis.Error)):
		return "redis"
	}
	return "connection"
}

// DialHook implements [redis.Hook].
func (h *commandHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (h *commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
