package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/backend"
	"cachelab/telemetry"
)

// Service makes the spans of a run's backend calls on the backend's side. Served says that its HTTP server has begun the span
// of the call; else that is begun here, under the caller's.
func Service(t *telemetry.Telemetry, run string, served bool) backend.Probe {
	return service{t.PriceService.Tracer(telemetry.PriceService), run, served}
}

type service struct {
	tracer trace.Tracer
	run    string
	served bool
}

func (s service) Arrive(ctx context.Context, _ backend.Call) (context.Context, func(backend.Call)) {
	span := trace.SpanFromContext(ctx)
	if !s.served {
		ctx, span = s.tracer.Start(ctx, telemetry.SpanPrice, trace.WithSpanKind(trace.SpanKindServer))
	}
	span.SetAttributes(telemetry.Run.String(s.run))
	return ctx, func(c backend.Call) {
		describe(span, c)
		s.fail(ctx, span, c.Err)
		if !s.served {
			span.End()
		}
	}
}

func (s service) Queue(ctx context.Context) func(error) { return s.step(ctx, telemetry.SpanQueued) }

func (s service) Compute(ctx context.Context) func(error) { return s.step(ctx, telemetry.SpanCompute) }

func (s service) step(ctx context.Context, name string) func(error) {
	ctx, span := s.tracer.Start(ctx, name, trace.WithAttributes(telemetry.Run.String(s.run)))
	return func(err error) {
		s.fail(ctx, span, err)
		span.End()
	}
}

// fail marks a span whose work ended in an error.
func (service) fail(ctx context.Context, span trace.Span, err error) {
	if err == nil {
		return
	}
	kind := errorType(ctx, err, nil)
	if errors.Is(err, backend.ErrUnavailable) {
		kind = "unavailable"
	}
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// describe says what only the backend knows of a call.
func describe(span trace.Span, c backend.Call) {
	span.SetAttributes(telemetry.CallNumber.Int(c.Number), telemetry.InFlight.Int(c.InFlight),
		telemetry.Queued.Float64(milliseconds(c.Queued)), telemetry.Redundant.Bool(c.Redundant), telemetry.Repeated.Bool(c.Repeated))
}
