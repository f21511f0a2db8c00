package otlp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"cachelab/telemetry/otlp"
)

// wire is a client that keeps what a receiver would read.
type wire struct {
	received         []*tracepb.ResourceSpans
	fails            error
	started, stopped int
}

func (w *wire) Start(context.Context) error { w.started++; return nil }
func (w *wire) Stop(context.Context) error  { w.stopped++; return nil }
func (w *wire) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	sent, err := proto.Marshal(&collectortrace.ExportTraceServiceRequest{ResourceSpans: spans})
	if err != nil {
		return err
	}
	var read collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(sent, &read); err != nil {
		return err
	}
	w.received = append(w.received, read.ResourceSpans...)
	return w.fails
}

// spans are each a message of its own, with the resource and the scope that it came under, in the order of their ids.
func (w *wire) spans() (all []*tracepb.ResourceSpans) {
	for _, r := range w.received {
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				all = append(all, &tracepb.ResourceSpans{Resource: r.Resource, SchemaUrl: r.SchemaUrl,
					ScopeSpans: []*tracepb.ScopeSpans{{Scope: s.Scope, SchemaUrl: s.SchemaUrl, Spans: []*tracepb.Span{span}}}})
			}
		}
	}
	slices.SortFunc(all, func(a, b *tracepb.ResourceSpans) int { return cmp.Compare(id(a), id(b)) })
	return all
}

func id(r *tracepb.ResourceSpans) string { return string(r.ScopeSpans[0].Spans[0].SpanId) }

// everything is spans with all that a span can have.
func everything(t *testing.T) []sdktrace.ReadOnlySpan {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=value")
	if err != nil {
		t.Fatal(err)
	}
	other := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true})
	attributes := []attribute.KeyValue{
		attribute.String("text", "value"), attribute.String("no text", ""), attribute.String("127", strings.Repeat("a", 127)),
		attribute.String("128", strings.Repeat("b", 128)), attribute.String("long", strings.Repeat("ü", 20_000)),
		attribute.Int("zero", 0), attribute.Int64("negative", -1), attribute.Int64("large", 1<<62),
		attribute.Bool("yes", true), attribute.Bool("no", false), attribute.Float64("half", 0.5), attribute.Float64("none", 0),
		attribute.StringSlice("texts", []string{"a", "", "b"}), attribute.StringSlice("no texts", nil), attribute.IntSlice("numbers", []int{1, 0, -1}),
		attribute.BoolSlice("bits", []bool{true, false}), attribute.Float64Slice("floats", []float64{1.5, 0}),
		{Key: "bytes", Value: attribute.ByteSliceValue([]byte{0, 1, 255})}, {Key: "nothing"},
		{Key: "mixed", Value: attribute.SliceValue(attribute.StringValue("a"), attribute.IntValue(0), attribute.Value{})},
		{Key: "map", Value: attribute.MapValue(attribute.String("b", "c"), attribute.StringSlice("d", []string{"e"}))},
	}
	recorder := tracetest.NewSpanRecorder()
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit, limits.EventCountLimit, limits.LinkCountLimit = len(attributes), 2, 2
	limits.AttributePerEventCountLimit, limits.AttributePerLinkCountLimit = 1, 1
	for _, about := range []*resource.Resource{
		resource.NewWithAttributes("https://schema/resource", attribute.String("service.name", "one"), attribute.Int("pid", 1)),
		resource.NewSchemaless(attribute.String("service.name", "two")), resource.Empty(),
	} {
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits))
		for _, tracer := range []trace.Tracer{
			provider.Tracer("plain"),
			provider.Tracer("full", trace.WithInstrumentationVersion("v1"), trace.WithSchemaURL("https://schema/scope"), trace.WithInstrumentationAttributes(attribute.Bool("a", false))),
		} {
			ctx, parent := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), other), "a parent elsewhere", trace.WithSpanKind(trace.SpanKindServer))
			for kind := trace.SpanKindUnspecified; kind <= trace.SpanKindConsumer; kind++ {
				_, span := tracer.Start(ctx, fmt.Sprint("kind ", kind), trace.WithSpanKind(kind))
				span.End()
			}
			_, empty := tracer.Start(context.Background(), "")
			empty.SetStatus(codes.Ok, "not told")
			empty.End()
			_, full := tracer.Start(ctx, "full", trace.WithAttributes(attributes...), trace.WithLinks(
				trace.Link{SpanContext: other, Attributes: attributes[:2]}, trace.Link{SpanContext: parent.SpanContext()}, trace.Link{SpanContext: other}))
			full.SetAttributes(attribute.Bool("dropped", true))
			for _, event := range []string{"dropped", "", "second"} {
				full.AddEvent(event, trace.WithAttributes(attributes[:3]...))
			}
			full.SetStatus(codes.Error, "failed")
			full.End()
			parent.End()
		}
	}
	return recorder.Ended()
}

// What is sent is what the SDK's own exporter sends, span by span, export after export.
func TestTheWireIsTheSDKs(t *testing.T) {
	ours, theirs := &wire{}, &wire{}
	exporter, err := otlp.New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := otlptrace.New(t.Context(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	all := everything(t)
	for batch := range slices.Chunk(all, 17) { // some tracers in each
		if err := errors.Join(exporter.ExportSpans(t.Context(), batch), reference.ExportSpans(t.Context(), batch)); err != nil {
			t.Fatal(err)
		}
	}
	got, want := ours.spans(), theirs.spans()
	if len(got) != 3*2*9 || len(want) != len(got) {
		t.Fatalf("%d spans, want %d, and theirs are %d", len(got), 3*2*9, len(want))
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("got  %v\nwant %v", got[i], want[i])
		}
	}
	if err := exporter.Shutdown(t.Context()); err != nil || ours.started != 1 || ours.stopped != 1 {
		t.Errorf("%v, started %d times, stopped %d times", err, ours.started, ours.stopped)
	}
}

func TestAClientsErrorIsTold(t *testing.T) {
	down := errors.New("down")
	exporter, err := otlp.New(t.Context(), &wire{fails: down})
	if err != nil {
		t.Fatal(err)
	}
	if err := exporter.ExportSpans(t.Context(), everything(t)); !errors.Is(err, down) {
		t.Errorf("%v, want %v", err, down)
	}
	if err := exporter.ExportSpans(t.Context(), nil); err != nil {
		t.Errorf("%v: nothing is sent when there is nothing", err)
	}
}
