package observe

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"cachelab/app/cache"
	"cachelab/telemetry"
)

// Refresh is a span of the round, as it goes on when the worker's is over, and linked to that. It counts its own steps.
func (p probe) Refresh(ctx context.Context, key string) (context.Context, func(*cache.Result, error)) {
	ctx, end := p.next.Refresh(ctx, key)
	worker := trace.SpanFromContext(ctx).SpanContext()
	if root := rootOf(ctx); root != nil {
		ctx = trace.ContextWithSpan(ctx, root)
	}
	var options []trace.SpanStartOption
	if worker.IsSampled() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: worker}))
		p.countLink()
	}
	ctx, span := p.tracer.Start(ctx, telemetry.SpanRefresh, options...)
	ctx = p.metrics.request(ctx)
	return ctx, func(r *cache.Result, err error) {
		result := refreshResult(r, err)
		span.SetAttributes(telemetry.Result.String(result), telemetry.Overtaken.Bool(r.Rechecked > 0))
		fail(ctx, span, err, r.Errors.Load)
		p.metrics.rest(ctx, r.Counts)
		p.metrics.refreshes[result].add(1)
		span.End()
		end(r, err)
	}
}

// refreshResult is what a refresh came to: refused is one that stored nothing, as a newer value was there, or the store would
// not.
func refreshResult(r *cache.Result, err error) string {
	switch {
	case err != nil:
		return resultFailed
	case r.SetsAbsent+r.SetsReplaced == 0:
		return resultRefused
	}
	return resultFilled
}

func (b *Bridge) countLink() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links++
}
