package telemetry_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"cachelab/telemetry"
)

// rounds makes rounds of spans as the lab does: a root for each slice, and a fill in the named slice.
type rounds struct {
	trace.Tracer
	provider *sdktrace.TracerProvider
}

func newRounds(recorder *telemetry.Capture) rounds {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return rounds{provider.Tracer("test"), provider}
}

func (r rounds) child(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return r.Start(ctx, name, trace.WithAttributes(attributes...))
}

// round has one worker in each slice; the winner calls the backend, the others wait and are linked to it.
func (r rounds) round(number, slices, winner int) {
	var fill trace.SpanContext
	order := []int{winner}
	for slice := range slices {
		if slice != winner {
			order = append(order, slice)
		}
	}
	for _, slice := range order {
		ctx, root := r.Start(context.Background(), telemetry.RoundSpan("fixed"), trace.WithNewRoot(), trace.WithAttributes(
			telemetry.Round.Int(number), telemetry.Slice.Int(slice), telemetry.Workers.Int(slices)))
		ctx, worker := r.child(ctx, telemetry.SpanWorker, telemetry.Number.Int(slice+1))
		_, get := r.child(ctx, telemetry.SpanGet, telemetry.CacheHit.Bool(false))
		get.End()
		ctx, miss := r.child(ctx, telemetry.SpanMiss)
		_, lock := r.child(ctx, telemetry.SpanLock, telemetry.LockAcquired.Bool(slice == winner))
		lock.End()
		if slice == winner {
			fill = miss.SpanContext()
			for _, name := range []string{telemetry.SpanBackendCall, telemetry.SpanSet, telemetry.SpanDel} {
				_, span := r.child(ctx, name)
				span.End()
			}
		} else {
			_, wait := r.Start(ctx, telemetry.SpanWait, trace.WithLinks(trace.Link{SpanContext: fill}))
			wait.End()
		}
		miss.End()
		worker.End()
		root.End()
	}
}

func names(recording telemetry.Recording) map[string]int {
	m := map[string]int{}
	for _, s := range recording.Spans {
		m[s.Name]++
	}
	return m
}

func TestTheRecorderKeepsTheFirstRoundWhole(t *testing.T) {
	recorder := telemetry.NewCapture(1)
	r := newRounds(recorder)
	_, outside := r.Start(t.Context(), "something else")
	outside.End()
	r.round(3, 4, 1) // the first round that it sees
	r.round(4, 4, 0)
	got := recorder.Recording()
	if got.Round != 3 || got.Workers != 4 || got.Omitted != 0 {
		t.Errorf("got round %d of %d workers, %d omitted", got.Round, got.Workers, got.Omitted)
	}
	want := map[string]int{"round fixed": 4, "worker": 4, "GET": 4, "MISS": 4, "SET NX PX": 4, "backend call": 1, "SET": 1, "DEL": 1, "wait for fill": 3}
	if fmt.Sprint(names(got)) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", names(got), want)
	}
	byID := map[string]telemetry.Span{}
	for _, s := range got.Spans {
		byID[s.ID] = s
	}
	for _, s := range got.Spans {
		switch s.Name {
		case "wait for fill":
			if len(s.Links) != 1 || byID[s.Links[0]].Name != "MISS" || byID[byID[s.Links[0]].Parent].Attributes["number"] != int64(2) {
				t.Errorf("a waiter is linked to %v", s.Links)
			}
		case "round fixed":
			if s.Parent != "" {
				t.Errorf("a root has the parent %q", s.Parent)
			}
		default:
			if byID[s.Parent].Name == "" || s.End.Before(s.Start) {
				t.Errorf("%s: parent %q, from %v to %v", s.Name, s.Parent, s.Start, s.End)
			}
		}
	}
}

func TestTheRecorderIsBoundedAndKeepsTheWinnerWhereverItIs(t *testing.T) {
	recorder := telemetry.NewCapture(1)
	newRounds(recorder).round(1, 40, 35)
	got := recorder.Recording()
	// All roots, the slices 0 to 9 whole, and of the winner's all but its GET.
	want := map[string]int{"round fixed": 40, "worker": 11, "GET": 10, "MISS": 11, "SET NX PX": 11, "backend call": 1, "SET": 1, "DEL": 1, "wait for fill": 10}
	if fmt.Sprint(names(got)) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", names(got), want)
	}
	if want := 29*5 + 1; got.Omitted != want {
		t.Errorf("%d omitted, want %d", got.Omitted, want)
	}

	recorder = telemetry.NewCapture(1)
	r := newRounds(recorder)
	ctx, root := r.Start(t.Context(), "round broken", trace.WithAttributes(telemetry.Round.Int(1), telemetry.Workers.Int(1)))
	for range 20_100 {
		_, span := r.Start(ctx, "GET")
		span.End()
	}
	root.End()
	if got := recorder.Recording(); len(got.Spans) != 20_001 || got.Omitted != 100 {
		t.Errorf("%d spans and %d omitted, want 20,000 with the root and 100", len(got.Spans), got.Omitted)
	}
}

func TestNothingRecordedIsNoRound(t *testing.T) {
	if got := telemetry.NewCapture(1).Recording(); got.Round != 0 || len(got.Spans) != 0 {
		t.Errorf("got %+v", got)
	}
}

// What recording costs for each span: it is done while the workers work.
func BenchmarkCapture(b *testing.B) {
	recorder := telemetry.NewCapture(1)
	r := newRounds(recorder)
	ctx, _ := r.Start(b.Context(), "round broken", trace.WithAttributes(telemetry.Round.Int(1), telemetry.Workers.Int(1)))
	b.ReportAllocs()
	for b.Loop() {
		_, span := r.Start(ctx, "GET")
		span.End()
	}
}
