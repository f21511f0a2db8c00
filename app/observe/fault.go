package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"cachelab/telemetry"
)

// Fault marks the moment of a drill's fault: an event on the context's span, and an attribute to search for.
func (b *Bridge) Fault(ctx context.Context, text string) {
	span, what := trace.SpanFromContext(ctx), telemetry.Fault.String(text)
	span.AddEvent(telemetry.EventFault, trace.WithAttributes(what))
	span.SetAttributes(what)
}

// RemoteStep is what another process of the run did, and reported.
type RemoteStep struct {
	Span         string // its name
	Began, Ended time.Time
	Process      int // id
	Err          error
	Attributes   []attribute.KeyValue
}

// Reported makes the span and the metric of a step that another process reported: its own would have died with it. What a
// call that failed was answered, nobody knows.
func (b *Bridge) Reported(ctx context.Context, s RemoteStep) {
	ctx, span := b.tracer.Start(ctx, s.Span, trace.WithTimestamp(s.Began), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(telemetry.ProcessID.Int(s.Process)), trace.WithAttributes(s.Attributes...))
	fail(ctx, span, s.Err, nil)
	span.End(trace.WithTimestamp(s.Ended))
	if s.Span == telemetry.SpanBackendCall {
		result := resultOK
		if s.Err != nil {
			result = resultUnknown
		}
		b.metrics.calls.add(1)
		b.metrics.answered(ctx, s.Ended.Sub(s.Began), result)
		return
	}
	b.metrics.commands.Add(ctx, 1, metric.WithAttributeSet(b.labels.Set(telemetry.Command.String(s.Span))))
}
