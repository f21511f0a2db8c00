package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cachelab/telemetry"
)

// spanFacts are what the stored spans of a run come to.
type spanFacts struct {
	total   int
	named   map[string]int
	outcome map[string]int // of worker spans
	wakes   map[string]int // events, by why
	missing []string       // ids of traces that are not stored

	links, hits, misses, polls, rechecks, acquired, held, released, refused, ended, stored, failedCalls, redundant, repeated, served, ofService int
}

// jaegerTraces is the answer of Jaeger's query API to /api/traces/ID.
type jaegerTraces struct {
	Data []storedTrace
}

// storedTrace may be of several services.
type storedTrace struct {
	Spans     []jaegerSpan
	Processes map[string]struct{ ServiceName string }
}

type jaegerSpan struct {
	SpanID        string
	ProcessID     string
	OperationName string
	References    []struct{ RefType, SpanID string }
	Tags          []struct {
		Key   string
		Value any
	}
	Logs []struct {
		Fields []struct {
			Key   string
			Value any
		}
	}
}

// events returns the values of an attribute of the span's events of that name.
func (s jaegerSpan) events(name, key string) (values []string) {
	for _, log := range s.Logs {
		is, value := false, ""
		for _, f := range log.Fields {
			is = is || f.Key == "event" && f.Value == name
			if f.Key == key {
				value = fmt.Sprint(f.Value)
			}
		}
		if is {
			values = append(values, value)
		}
	}
	return values
}

// parent returns the id of the span's parent, "" for a root. Links are references of the other type.
func (s jaegerSpan) parent() (id string, links int) {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" {
			id = r.SpanID
		} else {
			links++
		}
	}
	return id, links
}

func (s jaegerSpan) tag(key string) any {
	for _, t := range s.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return nil
}

// readSpans reads the traces by their ids: a search would be cut at its limit.
func readSpans(ctx context.Context, url string, rounds [][]string) (spanFacts, error) {
	f := spanFacts{named: map[string]int{}, outcome: map[string]int{}, wakes: map[string]int{}}
	for _, ids := range rounds {
		for _, id := range ids {
			var traces jaegerTraces
			err := getJSON(ctx, strings.TrimSuffix(url, "/")+"/api/traces/"+id, &traces)
			if status := statusError(0); errors.As(err, &status) && status == 404 || err == nil && len(traces.Data) == 0 {
				f.missing = append(f.missing, id)
				continue
			}
			if err != nil {
				return f, fmt.Errorf("read traces from Jaeger: %w; is the stack up (make up)?", err)
			}
			for _, t := range traces.Data {
				f.add(t)
			}
		}
	}
	return f, nil
}

func (f *spanFacts) add(trace storedTrace) {
	name := map[string]string{}
	for _, s := range trace.Spans {
		name[s.SpanID] = s.OperationName
	}
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	for _, s := range trace.Spans {
		parent, links := s.parent()
		f.total++
		service := trace.Processes[s.ProcessID].ServiceName == telemetry.PriceService
		count(&f.ofService, service)
		f.named[s.OperationName]++
		f.links += links
		is := func(key string) bool { return s.tag(key) == true }
		isNot := func(key string) bool { return s.tag(key) == false }
		switch s.OperationName {
		case telemetry.SpanWorker:
			f.outcome[fmt.Sprint(s.tag(string(telemetry.Outcome)))]++
			count(&f.rechecks, is(string(telemetry.Overtaken)))
		case telemetry.SpanRefresh:
			count(&f.rechecks, is(string(telemetry.Overtaken)))
		case telemetry.SpanGet:
			count(&f.hits, is(string(telemetry.CacheHit)))
			count(&f.misses, isNot(string(telemetry.CacheHit)))
			count(&f.polls, name[parent] == telemetry.SpanWait)
			count(&f.rechecks, is(string(telemetry.Recheck)) && is(string(telemetry.CacheHit)))
		case telemetry.SpanLock:
			count(&f.acquired, is(string(telemetry.LockAcquired)))
			count(&f.held, isNot(string(telemetry.LockAcquired)))
		case telemetry.SpanStoreAndUnlock:
			count(&f.released, is(string(telemetry.LockReleased)))
			count(&f.refused, isNot(string(telemetry.LockReleased)))
			count(&f.ended, is(string(telemetry.EndedCycle)))
			count(&f.stored, is(string(telemetry.Stored)))
		case telemetry.SpanDel:
			count(&f.released, is(string(telemetry.LockReleased)))
			count(&f.refused, isNot(string(telemetry.LockReleased)))
		case telemetry.SpanWait:
			for _, by := range s.events(telemetry.EventWake, string(telemetry.By)) {
				f.wakes[by]++
			}
		case telemetry.SpanSet:
			count(&f.ended, is(string(telemetry.EndedCycle)))
		case telemetry.SpanBackendCall:
			count(&f.failedCalls, is("error"))
			count(&f.redundant, is(string(telemetry.Redundant)))
			count(&f.repeated, is(string(telemetry.Repeated)))
		case telemetry.SpanPrice:
			count(&f.served, service)
		}
	}
}
