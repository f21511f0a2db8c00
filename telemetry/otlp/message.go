package otlp

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields, by their numbers in opentelemetry/proto/trace/v1/trace.proto, resource.proto and common.proto.
const (
	resourceSpansResource, resourceSpansScopeSpans, resourceSpansSchemaURL = 1, 2, 3
	resourceAttributes                                                     = 1
	scopeSpansScope, scopeSpansSpans, scopeSpansSchemaURL                  = 1, 2, 3
	scopeName, scopeVersion, scopeAttributes                               = 1, 2, 3

	spanTraceID, spanID, spanTraceState, spanParentID, spanName, spanKind = 1, 2, 3, 4, 5, 6
	spanStart, spanEnd, spanAttributes, spanDroppedAttributes             = 7, 8, 9, 10
	spanEvents, spanDroppedEvents, spanLinks, spanDroppedLinks            = 11, 12, 13, 14
	spanStatus, spanFlags                                                 = 15, 16
	eventTime, eventName, eventAttributes, eventDroppedAttributes         = 1, 2, 3, 4
	linkTraceID, linkSpanID, linkAttributes, linkDroppedAttributes        = 1, 2, 4, 5
	linkFlags                                                             = 6
	statusMessage, statusCode                                             = 2, 3

	keyValueKey, keyValueValue                    = 1, 2
	valueString, valueBool, valueInt, valueDouble = 1, 2, 3, 4
	valueArray, valueMap, valueBytes, listValues  = 5, 6, 7, 1
)

// message is a protobuf message in its wire format, written field by field. As in proto3, what is zero is left out.
type message []byte

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) number(field protowire.Number, n uint64) {
	if n != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), n)
	}
}

func (m *message) fixed64(field protowire.Number, n uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), n)
}

func (m *message) fixed32(field protowire.Number, n uint32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, field, protowire.Fixed32Type), n)
}

// nested writes a field that is a message: what fill writes. Its length comes first, and most take one byte.
func (m *message) nested(field protowire.Number, fill func(*message)) {
	*m = append(protowire.AppendTag(*m, field, protowire.BytesType), 0)
	start := len(*m)
	fill(m)
	length := len(*m) - start
	if more := protowire.SizeVarint(uint64(length)) - 1; more > 0 {
		*m = append(*m, make([]byte, more)...)
		copy((*m)[start+more:], (*m)[start:start+length])
	}
	protowire.AppendVarint((*m)[:start-1], uint64(length))
}

func (m *message) span(s sdktrace.ReadOnlySpan) {
	own, parent, status := s.SpanContext(), s.Parent(), s.Status()
	id, trace := own.SpanID(), own.TraceID()
	m.bytes(spanTraceID, trace[:])
	m.bytes(spanID, id[:])
	m.text(spanTraceState, own.TraceState().String())
	if id := parent.SpanID(); id.IsValid() {
		m.bytes(spanParentID, id[:])
	}
	m.text(spanName, s.Name())
	m.number(spanKind, uint64(s.SpanKind())) // the numbers are the same
	m.fixed64(spanStart, uint64(s.StartTime().UnixNano()))
	m.fixed64(spanEnd, uint64(s.EndTime().UnixNano()))
	m.attributes(spanAttributes, s.Attributes())
	m.number(spanDroppedAttributes, uint64(s.DroppedAttributes()))
	for _, e := range s.Events() {
		m.nested(spanEvents, func(m *message) { m.event(e) })
	}
	m.number(spanDroppedEvents, uint64(s.DroppedEvents()))
	for _, l := range s.Links() {
		m.nested(spanLinks, func(m *message) { m.link(l) })
	}
	m.number(spanDroppedLinks, uint64(s.DroppedLinks()))
	m.nested(spanStatus, func(m *message) {
		m.text(statusMessage, status.Description)
		m.number(statusCode, uint64(statusCodes[status.Code]))
	})
	m.fixed32(spanFlags, flags(own.TraceFlags(), parent))
}

// statusCodes are OTLP's, by the API's, whose numbers are others.
var statusCodes = [...]tracepb.Status_StatusCode{
	codes.Unset: tracepb.Status_STATUS_CODE_UNSET,
	codes.Error: tracepb.Status_STATUS_CODE_ERROR,
	codes.Ok:    tracepb.Status_STATUS_CODE_OK,
}

// flags are those of a span or a link, and that it is known whether its parent, or what it leads to, is in another process.
func flags(own trace.TraceFlags, other trace.SpanContext) uint32 {
	all := uint32(own) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if other.IsRemote() {
		all |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return all
}

func (m *message) event(e sdktrace.Event) {
	m.fixed64(eventTime, uint64(e.Time.UnixNano()))
	m.text(eventName, e.Name)
	m.attributes(eventAttributes, e.Attributes)
	m.number(eventDroppedAttributes, uint64(e.DroppedAttributeCount))
}

func (m *message) link(l sdktrace.Link) {
	id, trace := l.SpanContext.SpanID(), l.SpanContext.TraceID()
	m.bytes(linkTraceID, trace[:])
	m.bytes(linkSpanID, id[:])
	m.attributes(linkAttributes, l.Attributes)
	m.number(linkDroppedAttributes, uint64(l.DroppedAttributeCount))
	m.fixed32(linkFlags, flags(l.SpanContext.TraceFlags(), l.SpanContext))
}

func (m *message) attributes(field protowire.Number, all []attribute.KeyValue) {
	for _, a := range all {
		m.nested(field, func(m *message) {
			m.text(keyValueKey, string(a.Key))
			m.nested(keyValueValue, func(m *message) { m.value(a.Value) })
		})
	}
}

// value writes an AnyValue. It is one of several fields, so it is there if it is zero, too.
func (m *message) value(v attribute.Value) {
	switch v.Type() {
	case attribute.STRING:
		m.bytes(valueString, []byte(v.AsString()))
	case attribute.BOOL:
		*m = protowire.AppendVarint(protowire.AppendTag(*m, valueBool, protowire.VarintType), protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		*m = protowire.AppendVarint(protowire.AppendTag(*m, valueInt, protowire.VarintType), uint64(v.AsInt64()))
	case attribute.FLOAT64:
		m.fixed64(valueDouble, math.Float64bits(v.AsFloat64()))
	case attribute.BYTESLICE:
		m.bytes(valueBytes, v.AsByteSlice())
	case attribute.MAP:
		m.nested(valueMap, func(m *message) { m.attributes(listValues, v.AsMap()) })
	case attribute.SLICE:
		values(m, v.AsSlice(), func(v attribute.Value) attribute.Value { return v })
	case attribute.STRINGSLICE:
		values(m, v.AsStringSlice(), attribute.StringValue)
	case attribute.BOOLSLICE:
		values(m, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		values(m, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		values(m, v.AsFloat64Slice(), attribute.Float64Value)
	}
}

func values[T any](m *message, all []T, value func(T) attribute.Value) {
	m.nested(valueArray, func(m *message) {
		for _, one := range all {
			m.nested(listValues, func(m *message) { m.value(value(one)) })
		}
	})
}
