// Package otlp exports spans as OTLP. It sends what [otlptrace.New]'s exporter sends, through the same clients, and writes the wire
// format from the spans themselves, where that one first makes OTLP's structs of them: three allocations for each attribute, half
// of all that a span's telemetry allocates.
package otlp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// exporter implements [sdktrace.SpanExporter]: one export at a time.
type exporter struct {
	client otlptrace.Client
	groups []*group // of all exports so far: there are few
}

// New starts client and returns an exporter of spans to it. The caller shuts it down, which stops the client.
func New(ctx context.Context, client otlptrace.Client) (sdktrace.SpanExporter, error) {
	return &exporter{client: client}, client.Start(ctx)
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	if err := e.client.UploadTraces(ctx, e.encode(spans)); err != nil {
		return fmt.Errorf("traces export: %w", err)
	}
	return nil
}

// Shutdown implements [sdktrace.SpanExporter].
func (e *exporter) Shutdown(ctx context.Context) error { return e.client.Stop(ctx) }

// group is the spans of one tracer. Its room is used again by the next export.
type group struct {
	resource *resource.Resource
	scope    instrumentation.Scope
	spans    message // each a field of ScopeSpans
	whole    message // a ResourceSpans
}

// encode returns the spans by tracer. The client takes structs: each is empty, and what it stands for is among its fields that are
// not known, which are sent as they are.
func (e *exporter) encode(spans []sdktrace.ReadOnlySpan) (all []*tracepb.ResourceSpans) {
	for _, g := range e.groups {
		g.spans = g.spans[:0]
	}
	for _, s := range spans {
		e.groupOf(s).spans.nested(scopeSpansSpans, func(m *message) { m.span(s) })
	}
	for _, g := range e.groups {
		if len(g.spans) > 0 {
			encoded := &tracepb.ResourceSpans{}
			encoded.ProtoReflect().SetUnknown(g.encode())
			all = append(all, encoded)
		}
	}
	return all
}

// groupOf returns the group that s belongs to.
func (e *exporter) groupOf(s sdktrace.ReadOnlySpan) *group {
	about, scope := s.Resource(), s.InstrumentationScope()
	for _, g := range e.groups {
		if g.resource == about && g.scope == scope {
			return g
		}
	}
	g := &group{resource: about, scope: scope}
	e.groups = append(e.groups, g)
	return g
}

// encode returns what the group is as a ResourceSpans.
func (g *group) encode() []byte {
	m := &g.whole
	*m = (*m)[:0]
	m.nested(resourceSpansResource, func(m *message) { m.attributes(resourceAttributes, g.resource.Attributes()) })
	m.nested(resourceSpansScopeSpans, func(m *message) {
		m.nested(scopeSpansScope, func(m *message) {
			m.text(scopeName, g.scope.Name)
			m.text(scopeVersion, g.scope.Version)
			m.attributes(scopeAttributes, g.scope.Attributes.ToSlice())
		})
		*m = append(*m, g.spans...)
		m.text(scopeSpansSchemaURL, g.scope.SchemaURL)
	})
	m.text(resourceSpansSchemaURL, g.resource.SchemaURL())
	return *m
}
