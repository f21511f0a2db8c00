package observe

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"cachelab/app/herd"
)

// roots are the root spans of a round: of each process, one for each slice of its workers.
type roots struct {
	workers   int // of each process
	processes [][]trace.Span
}

// all are those of all processes.
func (r roots) all() []trace.Span { return slices.Concat(r.processes...) }

// of is the root span of a worker of this process. Those of others are not asked for here: then there is only this one.
func (r roots) of(w herd.Worker) trace.Span { return r.processes[0][(w.Number-1)%r.workers/sliceSize] }

type rootsKey struct{}

// rootOf is the root span of the worker's slice of the round, nil outside of a round.
func rootOf(ctx context.Context) trace.Span {
	if r, ok := ctx.Value(rootsKey{}).(roots); ok {
		return r.of(herd.WorkerFrom(ctx))
	}
	return nil
}

// Traces returns the trace contexts of a round's root spans for the workers of a process (from 1), in the form of W3C
// traceparents. The context is the one that Round returned.
func (b *Bridge) Traces(ctx context.Context, process int) (traceparents []string) {
	r, _ := ctx.Value(rootsKey{}).(roots)
	if process > len(r.processes) {
		return nil
	}
	for _, root := range r.processes[process-1] {
		if sc := root.SpanContext(); sc.IsValid() {
			traceparents = append(traceparents, traceparent(sc))
		}
	}
	return traceparents
}

// Under returns a context for so many workers of this process in a round whose root spans are another process's, which returned
// these Traces.
func (b *Bridge) Under(ctx context.Context, workers int, traceparents []string) context.Context {
	if len(traceparents) == 0 {
		return ctx
	}
	r := roots{workers: workers, processes: make([][]trace.Span, 1)}
	for _, text := range traceparents {
		root := trace.SpanFromContext(trace.ContextWithRemoteSpanContext(ctx, parseTraceparent(text)))
		r.processes[0] = append(r.processes[0], root)
	}
	return context.WithValue(ctx, rootsKey{}, r)
}

// Served counts how overdue the value was that a request of another process was served: when it was made, only this process
// knows.
func (b *Bridge) Served(ctx context.Context, r herd.Response) {
	b.metrics.served(ctx, &r, b.TTL)
}
