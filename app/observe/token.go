package observe

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"cachelab/app/cache"
)

// NewToken makes the lock's token: random, and followed by the trace context of the winner's MISS span in the form
// of a W3C traceparent. Whoever finds the token in Redis, in this process or another, can link to the fill that
// it waits for. The domain takes it as it is. Those who wait for it are counted until the MISS ends, or makes another.
func (b *Bridge) NewToken(ctx context.Context) string {
	token := cache.RandomToken(ctx)
	m, missed := ctx.Value(missKey{}).(*missing)
	span := trace.SpanFromContext(ctx) // of the worker, which refreshes a value that it found
	if missed {
		span = m.span
	}
	if sc := span.SpanContext(); sc.IsSampled() {
		token += "." + traceparent(sc)
	}
	if !missed {
		return token
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, m.token)
	m.token = token
	b.waiters[token] = 0
	return token
}

// traceparent is the span's context in the form of W3C.
func traceparent(sc trace.SpanContext) string {
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// spanOf reads the trace context out of a token. It is invalid if there is none, as in the token of a process
// without telemetry.
func spanOf(token string) trace.SpanContext {
	_, text, _ := strings.Cut(token, ".")
	return parseTraceparent(text)
}

// parseTraceparent reads a span's context. It is invalid if the text is.
func parseTraceparent(text string) trace.SpanContext {
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}
	}
	flags := trace.TraceFlags(0).WithSampled(parts[3] == trace.FlagsSampled.String())
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: flags, Remote: true})
}

// waitsFor links a waiter to the winner whose token it found in the lock, once to each, and counts it there.
func (b *Bridge) waitsFor(w *waiting, holder string) {
	if holder == "" || slices.Contains(w.linked, holder) {
		return
	}
	w.linked = append(w.linked, holder)
	winner := spanOf(holder)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, counted := b.waiters[holder]; counted { // not of another process, nor of a fill that is over
		b.waiters[holder] = n + 1
	}
	if winner.IsValid() && w.span.IsRecording() {
		w.span.AddLink(trace.Link{SpanContext: winner})
		b.links++
	}
}

// joins links a caller that waits for another's flight to the flight's MISS, and counts it there.
func (b *Bridge) joins(span trace.Span, miss context.Context) {
	m, ok := miss.Value(missKey{}).(*missing)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.joined++
	if sc := m.span.SpanContext(); sc.IsSampled() && span.IsRecording() {
		span.AddLink(trace.Link{SpanContext: sc})
		b.links++
	}
}

// takeWaiters returns how many waiters of this process have found the token so far, and how many share the flight.
func (b *Bridge) takeWaiters(m *missing) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.waiters[m.token]
	delete(b.waiters, m.token)
	return n + m.joined
}
