package telemetry

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// A call over HTTP has one span on each side: the caller's "backend call", whose context goes along, and the price service's
// "GET /price". The metrics of calls are the lab's own.

// Served returns next with the span of a call, in the trace that the request tells of.
func (t *Telemetry) Served(next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, SpanPrice, otelhttp.WithTracerProvider(t.PriceService), otelhttp.WithMeterProvider(noopmetric.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithSpanNameFormatter(func(name string, _ *http.Request) string { return name }))
}

// Carried returns next with the context of the caller's span in each request, and without a span of its own.
func Carried(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(nooptrace.NewTracerProvider()), otelhttp.WithMeterProvider(noopmetric.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}
