package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/record"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// serve answers each path with its text; a text that is a number is a status.
func serve(t *testing.T, answers map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		status := 0
		if _, err := fmt.Sscanf(text, "%d", &status); !known {
			http.NotFound(w, r)
		} else if err == nil {
			w.WriteHeader(status)
		} else {
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A trace as Jaeger answers it, cut to what is read: a winner, and a waiter that is linked to it, polls once in vain, takes
// the lock over, and finds the value by the re-check.
const jaegerTrace = `{"data": [{"traceID": "a", "processes": {"p1": {"serviceName": "cachelab"}, "p2": {"serviceName": "price-service"}}, "spans": [
	{"spanID": "r", "operationName": "round fixed", "references": [], "tags": [{"key": "workers", "type": "int64", "value": 2}]},
	{"spanID": "w1", "operationName": "worker", "references": [{"refType": "CHILD_OF", "spanID": "r"}], "tags": [{"key": "outcome", "value": "filled"}]},
	{"spanID": "m1", "operationName": "MISS", "references": [{"refType": "CHILD_OF", "spanID": "w1"}]},
	{"spanID": "g1", "operationName": "GET", "references": [{"refType": "CHILD_OF", "spanID": "w1"}], "tags": [{"key": "cache.hit", "value": false}]},
	{"spanID": "l1", "operationName": "SET NX PX", "references": [{"refType": "CHILD_OF", "spanID": "m1"}], "tags": [{"key": "lock.acquired", "value": true}]},
	{"spanID": "b1", "operationName": "backend call", "references": [{"refType": "CHILD_OF", "spanID": "m1"}],
		"tags": [{"key": "error", "value": true}, {"key": "redundant", "value": false}]},
	{"spanID": "b2", "operationName": "backend call", "references": [{"refType": "CHILD_OF", "spanID": "m1"}],
		"tags": [{"key": "redundant", "value": true}, {"key": "repeated", "value": true}]},
	{"spanID": "p1", "operationName": "GET /price", "processID": "p2", "references": [{"refType": "CHILD_OF", "spanID": "b1"}]},
	{"spanID": "p2", "operationName": "GET /price", "processID": "p1", "references": [{"refType": "CHILD_OF", "spanID": "b2"}]},
	{"spanID": "s1", "operationName": "SET", "references": [{"refType": "CHILD_OF", "spanID": "m1"}], "tags": [{"key": "ended_cycle", "value": true}]},
	{"spanID": "s2", "operationName": "SET", "references": [{"refType": "CHILD_OF", "spanID": "m1"}], "tags": [{"key": "ended_cycle", "value": false}]},
	{"spanID": "d1", "operationName": "DEL", "references": [{"refType": "CHILD_OF", "spanID": "m1"}], "tags": [{"key": "lock.released", "value": true}]},
	{"spanID": "w2", "operationName": "worker", "references": [{"refType": "CHILD_OF", "spanID": "r"}], "tags": [{"key": "outcome", "value": "waited"}]},
	{"spanID": "l2", "operationName": "SET NX PX", "references": [{"refType": "CHILD_OF", "spanID": "w2"}], "tags": [{"key": "lock.acquired", "value": false}]},
	{"spanID": "v2", "operationName": "wait for fill", "references": [{"refType": "CHILD_OF", "spanID": "w2"}, {"refType": "FOLLOWS_FROM", "spanID": "m1"}]},
	{"spanID": "g2", "operationName": "GET", "references": [{"refType": "CHILD_OF", "spanID": "v2"}], "tags": [{"key": "cache.hit", "value": false}]},
	{"spanID": "g4", "operationName": "GET", "references": [{"refType": "CHILD_OF", "spanID": "v2"}], "tags": [{"key": "error.type", "value": "timeout"}]},
	{"spanID": "g3", "operationName": "GET", "references": [{"refType": "CHILD_OF", "spanID": "w2"}],
		"tags": [{"key": "cache.hit", "value": true}, {"key": "recheck", "value": true}]},
	{"spanID": "d2", "operationName": "DEL", "references": [{"refType": "CHILD_OF", "spanID": "w2"}], "tags": [{"key": "lock.released", "value": false}]}
]}]}`

func TestSpansAreReadAsJaegerAnswers(t *testing.T) {
	s := serve(t, map[string]string{"/api/traces/a": jaegerTrace, "/api/traces/empty": `{"data": []}`, "/api/traces/none": "404"})
	f, err := readSpans(t.Context(), s.URL+"/", [][]string{{"a", "none"}, {}, {"empty"}})
	if err != nil {
		t.Fatal(err)
	}
	named, outcomes, missing := f.named, f.outcome, fmt.Sprint(f.missing)
	f.named, f.outcome, f.missing = nil, nil, nil
	want := spanFacts{total: 19, links: 1, hits: 1, misses: 2, polls: 2, rechecks: 1, acquired: 1, held: 1, released: 1, refused: 1,
		ended: 1, failedCalls: 1, redundant: 1, repeated: 1, served: 1, ofService: 1}
	if fmt.Sprintf("%+v", f) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	if want := map[string]int{"round fixed": 1, "worker": 2, "MISS": 1, "GET": 4, "SET NX PX": 2, "backend call": 2, "GET /price": 2, "SET": 2, "DEL": 2,
		"wait for fill": 1}; !maps.Equal(named, want) {
		t.Errorf("spans %v, want %v", named, want)
	}
	if want := map[string]int{"filled": 1, "waited": 1}; !maps.Equal(outcomes, want) || missing != "[none empty]" {
		t.Errorf("outcomes %v, missing %s", outcomes, missing)
	}
}

// prometheus is an answer to an instant query; each sample is "name|label=value|...|value".
func prometheus(samples ...string) string {
	type result struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	var all []result
	for _, s := range samples {
		fields := strings.Split(s, "|")
		r := result{map[string]string{"__name__": fields[0], "mode": "fixed"}, [2]any{1780000000.5, fields[len(fields)-1]}}
		for _, l := range fields[1 : len(fields)-1] {
			key, value, _ := strings.Cut(l, "=")
			r.Metric[key] = value
		}
		all = append(all, r)
	}
	text, _ := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": all}})
	return string(text)
}

func TestSamplesAreReadAsPrometheusAnswers(t *testing.T) {
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path + " " + r.URL.Query().Get("query")
		fmt.Fprint(w, prometheus("cachelab_gets_total|result=hit|7", "cachelab_gets_total|result=miss|5", "cachelab_run_verdict|1",
			"cachelab_workers|50", "cachelab_wait_duration_seconds_count|9", "cachelab_wait_duration_seconds_sum|2.5",
			"cachelab_run_latency_seconds|quantile=p99|0.314159", "cachelab_redis_commands_total|command=GET|12"))
	}))
	defer s.Close()
	m, err := readMetrics(t.Context(), s.URL+"/", "fixed-1", "fixed", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if want := `/api/v1/query last_over_time({__name__=~"cachelab_.+",cachelab_run="fixed-1",mode="fixed"}[120s])`; asked != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for what, test := range map[string]struct {
		got  *int
		want int
	}{
		"a sum":                      {m.sum(telemetry.MetricGets), 12},
		"one result of two":          {m.sum(telemetry.MetricGets, telemetry.Result.String("miss")), 5},
		"a result that is not there": {m.sum(telemetry.MetricGets, telemetry.Result.String("lost")), -1},
		"a verdict":                  {m.sum(telemetry.MetricRunVerdict), 1},
		"a gauge":                    {m.sum(telemetry.MetricWorkers), 50},
		"no metric":                  {m.sum(telemetry.MetricPolls), -1},
		"a histogram":                {m.count(telemetry.MetricWaitDuration), 9},
		"a histogram never used":     {m.count(telemetry.MetricRequestDuration), 0},
		"seconds":                    {m.micros(telemetry.MetricRunLatency, telemetry.Quantile.String("p99")), 314159},
		"no seconds":                 {m.micros(telemetry.MetricRunLatency, telemetry.Quantile.String("max")), -1},
		"a command":                  {m.command(telemetry.SpanGet), 12},
	} {
		if *test.got != test.want {
			t.Errorf("%s: %d, want %d", what, *test.got, test.want)
		}
	}
}

// What cannot be read is an error that names who said what; nothing is taken for a difference.
func TestReadersNameWhoDoesNotAnswer(t *testing.T) {
	const jaeger, query = "/api/traces/a", "/api/v1/query"
	good := map[string]string{jaeger: jaegerTrace, query: prometheus("cachelab_polls_total|1")}
	run := record.Record{Run: facts.Run{ID: "fixed-1", Mode: "fixed", TraceIDs: [][]string{{"a"}}, Started: time.Now()}}
	for name, test := range map[string]struct {
		change map[string]string
		run    func(*record.Record)
		want   []string
	}{
		"Jaeger fails":            {change: map[string]string{jaeger: "500"}, want: []string{"read traces from Jaeger", "/api/traces/a: answered 500", "make up"}},
		"Jaeger talks nonsense":   {change: map[string]string{jaeger: "<html>"}, want: []string{"read traces from Jaeger", "invalid character"}},
		"Prometheus fails":        {change: map[string]string{query: "503"}, want: []string{"read metrics from Prometheus", "answered 503", "make up"}},
		"Prometheus is not there": {change: map[string]string{query: "404"}, want: []string{"read metrics from Prometheus", "answered 404"}},
		"a sample is no number":   {change: map[string]string{query: prometheus("cachelab_polls_total|many")}, want: []string{`cachelab_polls_total is "many"`}},
		"neither knows the run": {change: map[string]string{jaeger: `{"data": []}`, query: prometheus()},
			want: []string{"neither Prometheus nor Jaeger knows run fixed-1", "run again"}},
		"no spans": {run: func(r *record.Record) { r.Run.TraceIDs = [][]string{} }, want: []string{"fixed-1 sent no spans: telemetry was off", "make up"}},
		"nothing was sampled": {run: func(r *record.Record) { r.Run.TraceIDs, r.Unsampled = [][]string{{}, {}}, 2 },
			want: []string{"fixed-1 sent no spans: the sampler left out all of its traces", "OTEL_TRACES_SAMPLER"}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := maps.Clone(good)
			maps.Copy(answers, test.change)
			s := serve(t, answers)
			r := run
			if test.run != nil {
				test.run(&r)
			}
			_, err := Run(t.Context(), r, Options{JaegerURL: s.URL, PrometheusURL: s.URL})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

// What comes late is waited for, and the wait ends.
func TestRunLooksAgainUntilAllIsThere(t *testing.T) {
	looks := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/traces/") {
			fmt.Fprint(w, `{"data": [{"spans": [{"spanID": "r", "operationName": "round fixed"}]}]}`)
			return
		}
		looks++
		var samples []string // of a run in which nothing happened, and which grows with each look
		for _, m := range agreed().metrics {
			line, value := m.labels["__name__"], 0
			for key, v := range m.labels {
				if key != "__name__" {
					line += "|" + key + "=" + v
				}
			}
			if line == "cachelab_rounds_total" || line == "cachelab_spans_total|result=exported" {
				value = min(looks-1, 1)
			}
			samples = append(samples, fmt.Sprintf("%s|%d", line, value))
		}
		fmt.Fprint(w, prometheus(samples...))
	}))
	defer s.Close()
	run := record.Record{Run: facts.Run{ID: "fixed-1", Mode: "fixed", Rounds: 1, TraceIDs: [][]string{{"a"}}, Started: time.Now(),
		Spans: telemetry.SpanCounts{Ended: 1, Exported: 1}, RedisCommands: facts.RedisCommands{Standing: redisstore.Exact}}}
	first, err := Run(t.Context(), run, Options{JaegerURL: s.URL, PrometheusURL: s.URL})
	if differ := first.facts(Differs); err != nil || !equalSets(differ, []string{"rounds", "spans exported"}) || looks != 1 {
		t.Errorf("without patience: %q differ after %d looks, %v", differ, looks, err)
	}
	looks = 0
	r, err := Run(t.Context(), run, Options{JaegerURL: s.URL, PrometheusURL: s.URL, Patience: time.Hour})
	if err != nil || r.Differing() != 0 || looks != 2 {
		t.Errorf("with patience: %q differ after %d looks, %v", r.facts(Differs), looks, err)
	}
}
