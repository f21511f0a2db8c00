package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/telemetry"
)

const workers, rounds = 120, 2 // three slices: 50, 50 and 20

// observed is a run with its spans and metrics in memory.
type observed struct {
	run     facts.Run
	spans   []sdktrace.ReadOnlySpan
	byID    map[trace.SpanID]sdktrace.ReadOnlySpan
	kids    map[trace.SpanID][]sdktrace.ReadOnlySpan
	metrics metricdata.ResourceMetrics
	printed string
}

func config(t *testing.T, redisURL string) lab.Config {
	target, err := redisstore.ParseTarget(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	return lab.Config{
		Workers: workers, Rounds: rounds, Key: "product:42:price", TTL: 700 * time.Millisecond,
		LockTTL: 10 * time.Second, WaitTimeout: 12 * time.Second, Redis: target, Quiet: true,
		Backend:   backend.Config{Latency: 300 * time.Millisecond, Capacity: 30}, // a busy machine's herd must miss in that time
		Telemetry: telemetry.Off, LookupEnv: os.LookupEnv, Console: io.Discard,
	}
}

func watch(t *testing.T, c lab.Config, name string) observed {
	t.Helper()
	mode, err := modes.All().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	recorder := tracetest.NewSpanRecorder()
	reader := sdkmetric.NewManualReader()
	c.Spans, c.Reader = recorder, kept{reader}
	var screen strings.Builder
	terminal := report.PlainTerminal(&screen)
	l, err := lab.Open(t.Context(), c, terminal)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run, err := l.Run(t.Context(), lab.Plan{Mode: mode})
	if err := errors.Join(err, terminal.Close()); err != nil {
		t.Fatal(err)
	}
	o := observed{run: run, spans: recorder.Ended(), byID: map[trace.SpanID]sdktrace.ReadOnlySpan{},
		kids: map[trace.SpanID][]sdktrace.ReadOnlySpan{}, printed: screen.String()}
	if err := reader.Collect(context.Background(), &o.metrics); err != nil {
		t.Fatal(err)
	}
	for _, s := range o.spans {
		o.byID[s.SpanContext().SpanID()] = s
		o.kids[s.Parent().SpanID()] = append(o.kids[s.Parent().SpanID()], s)
	}
	return o
}

// kept is a reader that can still be read after the run has shut its provider down.
type kept struct{ *sdkmetric.ManualReader }

func (kept) Shutdown(context.Context) error { return nil }

func (o observed) named(name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(slices.Clone(o.spans), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

func (o observed) parent(s sdktrace.ReadOnlySpan) string {
	if p, ok := o.byID[s.Parent().SpanID()]; ok {
		return p.Name()
	}
	return ""
}

// edges counts the spans by "parent > name".
func (o observed) edges() map[string]int {
	m := map[string]int{}
	for _, s := range o.spans {
		m[o.parent(s)+" > "+s.Name()]++
	}
	return m
}

func attr(s sdktrace.ReadOnlySpan, key attribute.Key) attribute.Value {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestTheTraceOfBroken(t *testing.T) {
	o := watch(t, config(t, redistest.Start(t).URL()), "broken")
	n := workers * rounds
	want := map[string]int{
		" > round broken": 3 * rounds, "round broken > worker": n, "worker > GET": n, "worker > MISS": n,
		"MISS > backend call": n, "MISS > SET": n,
		"backend call > GET /price": n, "GET /price > compute": n, "GET /price > queued": o.queued(),
	}
	if got := o.edges(); !maps.Equal(got, want) {
		t.Errorf("spans: got %v, want %v", got, want)
	}
	o.checkSpans(t)
	equal(t, "Redis's GETs", o.run.RedisCommands.Get, len(o.named("GET")))
	equal(t, "Redis's SETs", o.run.RedisCommands.Set, len(o.named("SET")))
	equal(t, "redundant calls", o.run.Redundant, n-rounds) // all but the first of each round
	o.checkMetrics(t)
}

func TestTheTraceOfFixed(t *testing.T) {
	o := watch(t, config(t, redistest.Start(t).URL()), "fixed")
	r := o.run
	n := workers * rounds
	firstHits := r.Requests - len(o.named("MISS"))
	equal(t, "hits", r.Outcomes["hit"], firstHits+r.Lock.Rechecked-lateHolders(o))
	firstMisses := len(o.named("MISS"))
	edges := o.edges()
	waiting := len(o.named("wait for fill"))
	want := map[string]int{
		" > round fixed": 3 * rounds, "round fixed > worker": n, "worker > GET": n, "worker > MISS": firstMisses,
		"MISS > backend call": r.BackendCalls, "MISS > SET": r.BackendCalls, "MISS > DEL": r.Lock.Acquired,
		"MISS > GET": r.Lock.Acquired, "MISS > SET NX PX": firstMisses, "MISS > wait for fill": waiting,
		"backend call > GET /price": r.BackendCalls, "GET /price > compute": r.BackendCalls,
		"wait for fill > GET": r.Polls, "wait for fill > SET NX PX": r.Lock.Acquired + r.Lock.Held - firstMisses,
	}
	for edge, count := range want {
		if count == 0 {
			delete(want, edge)
		}
	}
	if !maps.Equal(edges, want) {
		t.Errorf("spans: got %v, want %v", edges, want)
	}
	o.checkSpans(t)

	// The script reads the lock once, so GET spans + DEL spans are Redis's GETs.
	equal(t, "Redis's GETs", r.RedisCommands.Get, len(o.named("GET"))+len(o.named("DEL")))
	equal(t, "Redis's SETs", r.RedisCommands.Set, len(o.named("SET"))+len(o.named("SET NX PX")))
	equal(t, "Redis's EVALs", r.RedisCommands.Eval, len(o.named("DEL")))

	// Each waiter is linked to a winner of its round: a MISS that took the lock, and gave it back.
	told := 0
	for _, miss := range o.named("MISS") {
		told += int(attr(miss, "waiters").AsInt64())
	}
	links := 0
	for _, wait := range o.named("wait for fill") {
		if len(wait.Links()) == 0 {
			t.Error("a waiter without a link")
		}
		for _, link := range wait.Links() {
			links++
			winner, ok := o.byID[link.SpanContext.SpanID()]
			if !ok || winner.Name() != "MISS" || winner.SpanContext().TraceID() != link.SpanContext.TraceID() {
				t.Errorf("a link that is not to a MISS: %v", link)
				continue
			}
			names := map[string]int{}
			for _, kid := range o.kids[winner.SpanContext().SpanID()] {
				names[kid.Name()]++
			}
			if names["DEL"] != 1 || names["GET"] != 1 {
				t.Errorf("a link to a MISS with %v: not a winner", names)
			}
			if o.roundOf(winner) != o.roundOf(wait) {
				t.Errorf("a waiter of round %d is linked to a winner of round %d", o.roundOf(wait), o.roundOf(winner))
			}
		}
	}
	if told > links || told < waiting*9/10 {
		t.Errorf("the winners know of %d of %d waiters", told, links)
	}
	o.checkMetrics(t)
}

// lateHolders counts the re-checks that hit of workers that had waited before.
func lateHolders(o observed) int {
	n := 0
	for _, s := range o.named("GET") {
		if attr(s, "recheck").AsBool() && attr(s, "cache.hit").AsBool() {
			for _, kid := range o.kids[s.Parent().SpanID()] {
				if kid.Name() == "wait for fill" {
					n++
				}
			}
		}
	}
	return n
}

// roundOf climbs to the root.
func (o observed) roundOf(s sdktrace.ReadOnlySpan) int64 {
	for s.Parent().IsValid() {
		s = o.byID[s.Parent().SpanID()]
	}
	return attr(s, "round").AsInt64()
}

// checkSpans checks what holds in every mode: kinds, attributes, status, slices.
func (o observed) checkSpans(t *testing.T) {
	t.Helper()
	perTrace := map[trace.TraceID]int{}
	slice0 := map[int64]trace.SpanContext{}
	for _, s := range o.spans {
		perTrace[s.SpanContext().TraceID()]++
		if s.Status().Code != codes.Unset { // a miss is no error
			t.Errorf("%s has status %v", s.Name(), s.Status())
		}
		kind := trace.SpanKindInternal
		if slices.Contains([]string{"GET", "SET", "SET NX PX", "DEL"}, s.Name()) {
			kind = trace.SpanKindClient
			for key, want := range map[attribute.Key]string{
				"db.system": "redis", "db.system.name": "redis", "db.namespace": "0", "server.address": "127.0.0.1",
			} {
				equal(t, s.Name()+" "+string(key), attr(s, key).AsString(), want)
			}
			operation := map[string]string{"GET": "GET", "SET": "SET", "SET NX PX": "SET", "DEL": "EVAL"}[s.Name()]
			equal(t, s.Name()+" operation", attr(s, "db.operation.name").AsString(), operation)
			if text := attr(s, "db.query.text").AsString(); !strings.HasPrefix(text, operation+" ?") {
				t.Errorf("%s: query text %q", s.Name(), text)
			}
			if attr(s, "server.port").AsInt64() == 0 {
				t.Errorf("%s: no port", s.Name())
			}
		}
		switch s.Name() {
		case "backend call":
			kind = trace.SpanKindClient
		case "GET /price":
			kind = trace.SpanKindServer
		}
		equal(t, "kind of "+s.Name(), s.SpanKind(), kind)
		if s.Name() == "GET" {
			recheck := o.parent(s) == "MISS"
			equal(t, "recheck of a GET under "+o.parent(s), attr(s, "recheck").AsBool(), recheck)
		}
		if !s.Parent().IsValid() && attr(s, "slice").AsInt64() == 0 {
			slice0[attr(s, "round").AsInt64()] = s.SpanContext()
		}
	}
	equal(t, "traces", len(perTrace), 3*rounds)
	for id, n := range perTrace {
		if n >= 1000 {
			t.Errorf("trace %s has %d spans, want under 1,000", id, n)
		}
	}
	hits, acquired, released, ended := 0, 0, 0, 0
	for _, s := range o.spans {
		if s.Parent().IsValid() {
			for key, n := range map[attribute.Key]*int{"cache.hit": &hits, "lock.acquired": &acquired, "lock.released": &released, "ended_cycle": &ended} {
				if attr(s, key).AsBool() {
					*n++
				}
			}
			continue
		}
		equal(t, "run", attr(s, "run").AsString(), o.run.ID)
		equal(t, "mode", attr(s, "mode").AsString(), o.run.Mode)
		equal(t, "workers", attr(s, "workers").AsInt64(), int64(workers))
		equal(t, "root's calls", attr(s, "backend_calls").AsInt64(), int64(o.run.BackendCalls/rounds))
		equal(t, "root's waiters", attr(s, "waiters").AsInt64() > 0, o.run.Mode == "fixed")
		verdict := map[string]string{"broken": "invariant broken", "fixed": "invariant held"}[o.run.Mode]
		equal(t, "root's verdict", attr(s, "verdict").AsString(), verdict)
		if slice := attr(s, "slice").AsInt64(); slice == 0 {
			equal(t, "links of slice 0", len(s.Links()), 0)
		} else if len(s.Links()) != 1 || s.Links()[0].SpanContext.TraceID() != slice0[attr(s, "round").AsInt64()].TraceID() {
			t.Errorf("slice %d is linked to %v", slice, s.Links())
		}
	}
	equal(t, "hits", hits, o.run.Gets.Hit)
	equal(t, "acquired", acquired, o.run.Lock.Acquired)
	equal(t, "released", released, o.run.Lock.Released)
	equal(t, "ended cycles", ended, o.run.Expiries)
	equal(t, "rounds with trace ids", len(o.run.TraceIDs), 0) // none was exported
	calls := map[int64]bool{}
	for _, s := range o.named("backend call") {
		calls[attr(s, "call").AsInt64()] = true
		if attr(s, "in_flight").AsInt64() < 1 {
			t.Error("a backend call with nobody in flight")
		}
	}
	equal(t, "call numbers", len(calls), o.run.BackendCalls)
	o.checkServices(t)
}

// checkServices checks that the backend is a service of its own, and says of each call what its caller was told.
func (o observed) checkServices(t *testing.T) {
	t.Helper()
	instances := map[string]string{}
	for _, s := range o.spans {
		want := "cachelab"
		if slices.Contains([]string{"GET /price", "queued", "compute"}, s.Name()) {
			want = "price-service"
			equal(t, "run of "+s.Name(), attr(s, "run").AsString(), o.run.ID)
		}
		about := s.Resource().Set()
		of := func(key attribute.Key) string { v, _ := about.Value(key); return v.AsString() }
		equal(t, "service of "+s.Name(), of("service.name"), want)
		equal(t, "run of the service of "+s.Name(), of("cachelab.run"), o.run.ID)
		instances[of("service.instance.id")] = want
		if s.Name() == "GET /price" {
			for _, key := range []attribute.Key{"call", "in_flight", "queued_ms", "redundant", "repeated"} {
				equal(t, "GET /price: "+string(key), attr(s, key), attr(o.byID[s.Parent().SpanID()], key))
			}
			equal(t, "GET /price has queued", slices.ContainsFunc(o.kids[s.SpanContext().SpanID()], func(kid sdktrace.ReadOnlySpan) bool { return kid.Name() == "queued" }),
				attr(s, "queued_ms").AsFloat64() > 0)
		}
	}
	equal(t, "instances", len(instances), 2)
}

// queued are the calls that found no place: all beyond the capacity.
func (o observed) queued() int { return (workers - 30) * rounds }

// checkMetrics checks every metric against the ledger.
func (o observed) checkMetrics(t *testing.T) {
	t.Helper()
	r := o.run
	got := map[string]float64{}
	for _, scope := range o.metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			record(got, m)
		}
	}
	c := r.RedisCommands
	want := map[string]float64{
		"cachelab.gets hit": float64(r.Gets.Hit), "cachelab.gets miss": float64(r.Gets.Miss),
		"cachelab.lock.attempts acquired": float64(r.Lock.Acquired), "cachelab.lock.attempts held": float64(r.Lock.Held),
		"cachelab.lock.rechecks": float64(r.Lock.Rechecked), "cachelab.lock.releases released": float64(r.Lock.Released),
		"cachelab.lock.releases lost": 0, "cachelab.lock.releases error": 0, "cachelab.lock.timeouts": 0, "cachelab.polls": float64(r.Polls),
		"cachelab.misses":        float64(len(o.named("MISS"))),
		"cachelab.backend.calls": float64(r.BackendCalls), "cachelab.backend.answers ok": float64(r.BackendCalls),
		"cachelab.backend.answers error": 0, "cachelab.backend.answers unknown": 0,
		"cachelab.backend.redundant": float64(r.Redundant), "cachelab.backend.repeated": 0,
		"cachelab.backend.queued": 0, "cachelab.backend.duration ok": float64(r.BackendCalls),
		"cachelab.requests hit": float64(r.Outcomes["hit"]), "cachelab.requests filled": float64(r.Outcomes["filled"]),
		"cachelab.requests waited": float64(r.Outcomes["waited"]), "cachelab.requests error": 0,
		"cachelab.refreshes filled": 0, "cachelab.refreshes refused": 0, "cachelab.refreshes failed": 0,
		"cachelab.expiries": float64(r.Expiries), "cachelab.rounds": rounds, "cachelab.run.active": 0, "cachelab.run.verdict": 1,
		"cachelab.workers":         workers,
		"cachelab.run.latency p50": r.Latency.P50 / 1000, "cachelab.run.latency p95": r.Latency.P95 / 1000,
		"cachelab.run.latency p99": r.Latency.P99 / 1000, "cachelab.run.latency max": r.Latency.Max / 1000,
		"cachelab.redis.commands GET": float64(c.Get - c.Eval), "cachelab.redis.commands SET NX PX": float64(r.Lock.Acquired + r.Lock.Held),
		"cachelab.redis.commands SET": float64(r.BackendCalls), "cachelab.redis.commands DEL": float64(c.Eval), "cachelab.redis.commands SET, DEL": 0, "cachelab.redis.commands PUBLISH": 0,
		"cachelab.value.overdue": float64(r.Requests), // of each value that was served
		"cachelab.wakes message": 0, "cachelab.wakes look": 0, "cachelab.wakes reconnect": 0,
		"cachelab.spans exported": 0, "cachelab.spans dropped": 0,
		"cachelab.backend.in_flight.peak": float64(r.BackendPeak), // of the last 2 s: the second herd's
	}
	for _, outcome := range []string{"hit", "filled", "waited"} {
		if n := r.Outcomes[cache.Outcome(outcome)]; n > 0 {
			want["cachelab.request.duration "+outcome] = float64(n)
		}
	}
	if waits := len(o.named("wait for fill")); waits > 0 {
		want["cachelab.wait.duration"] = float64(waits)
	}
	for name, value := range want {
		if g, ok := got[name]; !ok || g-value > 1e-4 || value-g > 1e-4 {
			t.Errorf("metric %s: got %v (%v), want %v", name, g, ok, value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && strings.HasPrefix(name, "cachelab.") {
			t.Errorf("metric %s is unexpected", name)
		}
	}
	for _, name := range []string{"go.goroutine.count", "db.client.connections.usage used", "db.client.connections.waits"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no metric %s in %v", name, slices.Sorted(maps.Keys(got)))
		}
	}
}

// record flattens a metric to "name attribute" -> value; for histograms the count.
func record(into map[string]float64, m metricdata.Metrics) {
	key := func(set attribute.Set) string {
		name := m.Name
		for _, a := range set.ToSlice() {
			if slices.Contains([]attribute.Key{"result", "outcome", "command", "quantile", "state", "by"}, a.Key) {
				name += " " + a.Value.String()
			}
		}
		return name
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			into[key(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			into[key(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			into[key(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			into[key(p.Attributes)] = float64(p.Count)
			if strings.HasPrefix(m.Name, "cachelab.") && len(p.Exemplars) == 0 {
				into[fmt.Sprintf("cachelab. %s without exemplars", key(p.Attributes))] = 0
			}
		}
	}
}
