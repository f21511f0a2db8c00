package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of a recording. A round of 500 waiters makes about 7,500 spans.
const (
	maxRecordedSlices = 10
	maxRecordedSpans  = 20_000
)

// Capture keeps the spans of a run's first round in memory, for pictures: what is exported, and no second account.
// It is a SpanProcessor for one run: give it to [Options.Capture], and ask for the [Recording] at the end. Of a run of several
// processes each has one.
//
// It is bounded. Of a large round it keeps the spans of the first slices whole, and from the others what makes a
// fill (lock, re-check, backend call, SET, DEL) with the spans above it, so that the winner is there wherever it was.
type Capture struct {
	done   atomic.Bool // the first round is over
	slices int         // that are kept whole

	mu      sync.Mutex // guards all below
	round   int64
	workers int64
	traces  map[trace.TraceID]bool // of the round; true if kept whole
	wanted  map[trace.SpanID]bool  // parents of kept spans
	spans   []sdktrace.ReadOnlySpan
	omitted int
}

// NewCapture returns a recorder for one run of that many processes.
func NewCapture(processes int) *Capture {
	return &Capture{slices: max(1, maxRecordedSlices/max(1, processes)), traces: map[trace.TraceID]bool{}, wanted: map[trace.SpanID]bool{}}
}

// OnStart implements [sdktrace.SpanProcessor]: it looks at roots only, and at workers whose root is another process's.
func (r *Capture) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if parent := s.Parent(); r.done.Load() || parent.IsValid() && !parent.IsRemote() {
		return
	}
	about := attributesOf(s)
	number, _ := about[string(Round)].(int64)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.traces[s.SpanContext().TraceID()]
	switch {
	case number == 0 || known: // neither a root of a round, nor a worker; or the trace's second worker
	case r.round == 0 || r.round == number:
		r.round = number
		r.workers, _ = about[string(Workers)].(int64)
		slice, isRoot := about[string(Slice)].(int64)
		if !isRoot {
			slice = int64(len(r.traces))
		}
		r.traces[s.SpanContext().TraceID()] = slice < int64(r.slices)
	default:
		r.done.Store(true)
	}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (r *Capture) OnEnd(s sdktrace.ReadOnlySpan) {
	if r.done.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	whole, known := r.traces[s.SpanContext().TraceID()]
	if !known {
		return
	}
	id := s.SpanContext().SpanID()
	keep := whole || r.wanted[id] || partOfFill(s) || !s.Parent().IsValid()
	delete(r.wanted, id)
	full := len(r.spans) >= maxRecordedSpans && s.Parent().IsValid() // roots are few, and say what the round came to
	if !keep || full {
		r.omitted++
		return
	}
	r.spans = append(r.spans, s)
	if !whole { // a span ends before its parent does
		r.wanted[s.Parent().SpanID()] = true
	}
}

// partOfFill tells the spans that only a request with the lock, or with a backend call, has.
func partOfFill(s sdktrace.ReadOnlySpan) bool {
	switch s.Name() {
	case SpanBackendCall, SpanSet, SpanDel, SpanStoreAndUnlock:
		return true
	case SpanLock:
		return attributesOf(s)[string(LockAcquired)] == true
	case SpanGet:
		return attributesOf(s)[string(Recheck)] == true
	}
	return false
}

// Shutdown implements [sdktrace.SpanProcessor].
func (r *Capture) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdktrace.SpanProcessor].
func (r *Capture) ForceFlush(context.Context) error { return nil }

// Recording is one round as its spans tell it.
type Recording struct {
	Round   int // from 1; 0 if none took place
	Workers int
	Spans   []Span // in the order in which they ended
	Omitted int    // spans of the round that were not kept
}

// Span is a span without OpenTelemetry's machinery.
type Span struct {
	ID, Parent string // Parent is "" for a root
	Name       string
	Start, End time.Time
	Attributes map[string]any // by the keys in names.go; numbers are int64 or float64, and float64 all if they came from another process
	Links      []string       // the spans it is linked to
	Failed     bool
}

// Join adds what another process of the run recorded of the round.
func (r *Recording) Join(spans []Span, omitted int) {
	r.Spans, r.Omitted = append(r.Spans, spans...), r.Omitted+omitted
}

// Recording returns what was recorded.
func (r *Capture) Recording() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Recording{Round: int(r.round), Workers: int(r.workers), Omitted: r.omitted}
	for _, s := range r.spans {
		one := Span{
			ID: s.SpanContext().SpanID().String(), Name: s.Name(), Start: s.StartTime(), End: s.EndTime(),
			Attributes: attributesOf(s), Failed: s.Status().Code == codes.Error,
		}
		if s.Parent().IsValid() {
			one.Parent = s.Parent().SpanID().String()
		}
		for _, link := range s.Links() {
			one.Links = append(one.Links, link.SpanContext.SpanID().String())
		}
		out.Spans = append(out.Spans, one)
	}
	return out
}

// attributesOf returns them as Go values; integers are int64.
func attributesOf(s sdktrace.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}
