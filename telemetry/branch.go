package telemetry

import (
	"context"
	"errors"

	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// Branch returns a Telemetry whose spans are counted apart, and whose metrics are t's: a run of two modes has one
// for each. It must be shut down before t, so that the last push of t's metrics tells of all its spans.
func (t *Telemetry) Branch(ctx context.Context) (*Telemetry, error) {
	b := &Telemetry{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: t.MeterProvider, meter: t.meter, branch: true,
		options: t.options, traceable: t.traceable, patience: t.patience}
	if t.tracer == nil {
		return b, nil
	}
	if t.spans == nil {
		b.startTraces(t.about, nil, t.options.processors())
		return b, nil
	}
	exporter, _, err := newSpanExporter(ctx, t.options.Lookup, t.options.Console)
	if err != nil {
		return nil, err
	}
	b.startTraces(t.about, exporter, t.options.processors())
	return b, nil
}

// ShutdownAll shuts branches down, at the same time, so that a receiver that stopped answering costs no more than
// once. The error tells what was not delivered.
func ShutdownAll(ctx context.Context, branches []*Telemetry) error {
	errs := make(chan error)
	for _, b := range branches {
		go func() { errs <- b.Shutdown(ctx) }()
	}
	var all []error
	for range branches {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
