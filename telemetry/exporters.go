package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"cachelab/telemetry/otlp"
	"cachelab/telemetry/redact"
)

// exportTimeout bounds one request to a receiver, the empty one before the run too. Nothing is retried: a receiver on the
// same machine that fails once is not there, and the run must not wait for it.
const exportTimeout = time.Second

// newSpanExporter returns the exporter that the variables ask for and a check of its receiver; nil if there is
// to be none.
func newSpanExporter(ctx context.Context, env lookup, console io.Writer) (sdktrace.SpanExporter, *receiver, error) {
	kind, err := traces.exporterKind(env)
	if err != nil || kind == "none" {
		return nil, nil, err
	}
	if kind == "console" {
		exporter, err := stdouttrace.New(stdouttrace.WithWriter(console))
		return exporter, nil, err
	}
	e, err := traces.endpoint(env)
	if err != nil {
		return nil, nil, err
	}
	var client otlptrace.Client
	if e.overGRPC {
		client = otlptracegrpc.NewClient(otlptracegrpc.WithEndpointURL(e.url), otlptracegrpc.WithTimeout(traces.timeout(env)),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	} else {
		client = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(e.url), otlptracehttp.WithTimeout(traces.timeout(env)),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	}
	exporter, err := otlp.New(ctx, client)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the export of traces to %s: %w", e, err)
	}
	check := func(ctx context.Context) error { return client.UploadTraces(ctx, nil) }
	return exporter, &receiver{signal: traces, endpoint: e, check: check, limit: traces.timeout(env)}, nil
}

// newMetricExporter does the same for metrics.
func newMetricExporter(ctx context.Context, env lookup, console io.Writer) (sdkmetric.Exporter, *receiver, error) {
	kind, err := metrics.exporterKind(env)
	if err != nil || kind == "none" {
		return nil, nil, err
	}
	if kind == "console" {
		exporter, err := stdoutmetric.New(stdoutmetric.WithWriter(console))
		return exporter, nil, err
	}
	e, err := metrics.endpoint(env)
	if err != nil {
		return nil, nil, err
	}
	form, err := formOf(env, e)
	if err != nil {
		return nil, nil, err
	}
	var exporter sdkmetric.Exporter
	if e.overGRPC {
		exporter, err = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(e.url), otlpmetricgrpc.WithTimeout(metrics.timeout(env)),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
	} else {
		options := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpointURL(e.url), otlpmetrichttp.WithTimeout(metrics.timeout(env)),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
		if form.fixed {
			options = append(options, otlpmetrichttp.WithTemporalitySelector(sdkmetric.DefaultTemporalitySelector),
				otlpmetrichttp.WithAggregationSelector(sdkmetric.DefaultAggregationSelector))
		}
		exporter, err = otlpmetrichttp.New(ctx, options...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("set up the export of metrics to %s: %w", e, err)
	}
	check := func(ctx context.Context) error { return exporter.Export(ctx, &metricdata.ResourceMetrics{}) }
	return exporter, &receiver{signal: metrics, endpoint: e, check: check, limit: metrics.timeout(env), notice: form.notice}, nil
}

// receiver is where a signal goes, and how to find out whether it gets there.
type receiver struct {
	signal
	endpoint
	check func(context.Context) error // sends an empty request the way that the real ones go
	limit time.Duration               // of one request
	// notice is for the user, if the receiver accepts; "" if there is nothing to say
	notice string
}

// String returns where the receiver is.
func (r *receiver) String() string { return r.endpoint.String() }

// problem is what a receiver answered to an empty request.
type problem struct {
	absent bool // nobody listens, or nobody answers: as opposed to somebody who answers something wrong
	err    error
}

// probe returns nil if the receiver accepts.
func (r *receiver) probe(ctx context.Context) *problem {
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	err := r.check(limited)
	if err == nil {
		return nil
	}
	timeout := net.Error(nil)
	late := limited.Err() != nil || errors.As(err, &timeout) && timeout.Timeout()
	reason := firstLine(err)
	if late && !r.overGRPC {
		reason = fmt.Sprintf("no answer within %v", r.limit)
	}
	absent := late && !r.overGRPC || errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(reason, "connection refused")
	return &problem{absent, fmt.Errorf("%s cannot be sent to %s: %s; %s", r.signal, r.endpoint, reason, r.advice(r.endpoint, reason))}
}

// firstLine is what is shown of a client's error. The client repeats its URL.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return redact.Text(line)
}
