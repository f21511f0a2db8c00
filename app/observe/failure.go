package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/cache"
	"cachelab/telemetry"
)

// fail marks a span whose work ended in an error. The other error is that of the work's backend call, if there was one.
func fail(ctx context.Context, span trace.Span, err, ofCall error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(ctx, err, ofCall)))
	}
}

// errorType is one of few words, as the convention wants it.
func errorType(ctx context.Context, err, ofCall error) string {
	kind := telemetry.ErrorType(err)
	switch {
	case errors.Is(err, cache.ErrWaitTimeout):
		return "wait_timeout"
	case ctx.Err() != nil: // the error is its cause, which may be anything
		return telemetry.ErrorType(ctx.Err())
	case kind == telemetry.OtherError && ofCall != nil && errors.Is(err, ofCall):
		return "backend"
	}
	return kind
}
