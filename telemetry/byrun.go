package telemetry

import (
	"context"
	"slices"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// byRun counts spans by the run that they say they are of, for a service that many runs share. Like [counter] it stands at both
// ends of the batch processor.
type byRun struct {
	sdktrace.SpanExporter

	mu    sync.Mutex // guards all below
	runs  map[string]*SpanCounts
	order []string // in which the runs came: the oldest are forgotten
}

// maxCountedRuns bounds what is remembered.
const maxCountedRuns = 1000

func newByRun(next sdktrace.SpanExporter) *byRun {
	return &byRun{SpanExporter: next, runs: map[string]*SpanCounts{}}
}

func (b *byRun) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (b *byRun) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		b.add(SpanCounts{Ended: 1}, s)
	}
}
func (b *byRun) ForceFlush(context.Context) error { return nil }

// ExportSpans implements [sdktrace.SpanExporter]. Of a batch of which some spans were refused nobody can tell which.
func (b *byRun) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := b.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		b.add(SpanCounts{Exported: 1}, spans...)
	}
	return err
}

func (b *byRun) add(each SpanCounts, spans ...sdktrace.ReadOnlySpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range spans {
		run, _ := attributesOf(s)[string(Run)].(string)
		n := b.runs[run]
		if n == nil {
			if len(b.order) >= maxCountedRuns {
				delete(b.runs, b.order[0])
				b.order = slices.Delete(b.order, 0, 1)
			}
			n = &SpanCounts{}
			b.runs[run] = n
			b.order = append(b.order, run)
		}
		n.Ended += each.Ended
		n.Exported += each.Exported
	}
}

// SpansOf exports what has ended, and returns what became of the spans of a run; with [Options.ByRun]. A receiver that has
// stopped accepting is given up after a moment.
func (t *Telemetry) SpansOf(ctx context.Context, run string) SpanCounts {
	if t.byRun == nil {
		return SpanCounts{}
	}
	limited, cancel := context.WithTimeout(ctx, spansPatience)
	defer cancel()
	_ = t.processor.ForceFlush(limited) // what was not exported by then counts as dropped
	t.byRun.mu.Lock()
	defer t.byRun.mu.Unlock()
	n := SpanCounts{}
	if counted := t.byRun.runs[run]; counted != nil {
		n = *counted
	}
	n.Dropped = n.Ended - n.Exported
	return n
}
