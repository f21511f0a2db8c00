//go:build e2e

package deploy

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The stack end to end, without Docker: "make e2e".

// runs are the runs that are verified, with short expiries to save time.
var runs = [][]string{
	{"broken", "--ttl", "1500ms"},
	{"fixed", "--ttl", "500ms"},
	{"fixed", "--ttl", "500ms", "--workers", "200", "--rounds", "3"},
	{"coalesced", "--ttl", "500ms"},
	{"woken", "--ttl", "500ms"},
	{"load", "--ttl", "500ms"},
}

func TestWhatIsStoredIsWhatWasPrinted(t *testing.T) {
	s := startServers(t)
	for i, args := range runs {
		r := s.lab(t, args...)
		if r.code != 0 {
			t.Fatalf("%q: exit %d:\n%s", args, r.code, r.out)
		}
		v := s.lab(t, "verify")
		rows := find1(t, v.out, `(\d+) rows equal`)
		n, _ := strconv.Atoi(rows)
		if v.code != 0 || n < 15 || !strings.Contains(v.out, "the app, Redis, Jaeger and Prometheus agree") {
			t.Fatalf("%q: verify: exit %d:\n%s", args, v.code, v.out)
		}
		t.Logf("%q: %s rows equal: %s", args, rows, tail(v.out, 1))
		if i == 0 { // the first burst on an empty Prometheus (P8)
			first := s.query(t, fmt.Sprintf(`min_over_time(cachelab_backend_calls_total{cachelab_run=%q}[5m])`, r.json.Run))
			if !slices.Equal(first, []float64{0}) {
				t.Errorf("the first sample is %v, want 0", first)
			}
		}
		s.checkLinks(t, r)
		s.checkExemplars(t, r)
	}
	t.Logf("resident memory: Jaeger %d MB, Prometheus %d MB", s.jaegerProcess.resident(t), s.prometheusProcess.resident(t))
}

// checkLinks opens each trace that the run printed.
func (s *servers) checkLinks(t *testing.T, r result) {
	t.Helper()
	links := regexp.MustCompile(`round (\d+)  (http\S+)/trace/(\w+)`).FindAllStringSubmatch(r.out, -1)
	if len(links) != len(r.json.TraceIDs) {
		t.Errorf("%d links for %d rounds:\n%s", len(links), len(r.json.TraceIDs), r.out)
	}
	for _, link := range links {
		var traces struct {
			Data []struct {
				Spans []struct {
					OperationName string
					References    []struct{ RefType string }
					Tags          []struct {
						Key   string
						Value any
					}
				}
			}
		}
		if err := get(t, link[2]+"/api/traces/"+link[3], &traces); err != nil {
			t.Error(err)
			continue
		}
		found := false
		for _, span := range traces.Data[0].Spans {
			if span.OperationName != "round "+r.json.Mode {
				continue
			}
			for _, tag := range span.Tags {
				found = found || tag.Key == "round" && fmt.Sprint(tag.Value) == link[1]
			}
		}
		if !found {
			t.Errorf("the link of round %s leads to another trace", link[1])
		}
	}
}

// checkExemplars looks whether the latencies' exemplars lead to traces of the run.
func (s *servers) checkExemplars(t *testing.T, r result) {
	t.Helper()
	var answer struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	query := url.QueryEscape(fmt.Sprintf(`cachelab_request_duration_seconds_bucket{cachelab_run=%q}`, r.json.Run))
	address := fmt.Sprintf("%s/api/v1/query_exemplars?query=%s&start=%d&end=%d", s.prometheus, query, time.Now().Add(-5*time.Minute).Unix(), time.Now().Unix()+1)
	if err := get(t, address, &answer); err != nil {
		t.Fatal(err)
	}
	ids := slices.Concat(r.json.TraceIDs...)
	n := 0
	for _, series := range answer.Data {
		for _, e := range series.Exemplars {
			n++
			if id := e.Labels["trace_id"]; !slices.Contains(ids, id) || e.Labels["span_id"] == "" {
				t.Errorf("an exemplar leads to trace %q, which is not the run's", id)
			}
		}
	}
	if n == 0 {
		t.Errorf("no exemplar of run %s", r.json.Run)
	}
}

// A trace that Jaeger has no more is no difference, and no agreement.
func TestVerifyNamesTracesThatJaegerHasForgotten(t *testing.T) {
	s := startServers(t)
	s.lab(t, "fixed", "--rounds", "1", "--workers", "2", "--backend-latency", "10ms")
	record, err := filepath.Glob(filepath.Join(s.records, "*.json"))
	if err != nil || len(record) != 1 {
		t.Fatal(record, err)
	}
	text := regexp.MustCompile(`"trace_ids": \[\s*\[\s*"`).ReplaceAllString(read(t, record[0]), "${0}0123456789abcdef0123456789abcdef\", \"")
	if err := os.WriteFile(record[0], []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	v := s.lab(t, "verify", "--patience", "0s")
	if v.code != 1 || strings.Contains(v.out, "differs") || !strings.Contains(v.out, "1 of the run's traces are not in Jaeger any more") {
		t.Errorf("exit %d:\n%s", v.code, v.out)
	}
}

// Live has two modes in one run: each is verified.
func TestLiveIsStoredAsItWasPrintedInEachMode(t *testing.T) {
	s := startServers(t)
	from := time.Now()
	r := s.lab(t, "live", "--for", "6s", "--each", "3s", "--ttl", "500ms")
	if r.code != 0 {
		t.Fatal(r.out)
	}
	v := s.lab(t, "verify")
	if v.code != 0 || strings.Count(v.out, "the app, Redis, Jaeger and Prometheus agree") != 2 {
		t.Fatalf("verify: exit %d:\n%s", v.code, v.out)
	}
	for _, bar := range s.queryRange(t, `sum by (mode) (cachelab_backend_calls_total - (cachelab_backend_calls_total offset 1s))`, from, time.Now().Add(time.Second)) {
		if bar < 0 {
			t.Errorf("a bar of %v", bar)
		}
	}
	// What shows ordinary runs, the gallery or other modes alone is empty, and nothing else.
	other := []string{"Backend calls per expiry", "Calls saved", "Peak in flight", "Latency p99", "Round traces", "gallery: ", "(other modes)"}
	ofAny := regexp.MustCompile(`: (shade|mode|run)$`)
	emptyOnes := func(g grafana, which string) {
		everyQuery(t, g, func(where string, got int, err error) {
			empty := !ofAny.MatchString(where) && slices.ContainsFunc(other, func(title string) bool { return strings.Contains(where, title) })
			if err != nil || empty != (got == 0) && !strings.Contains(where, "Alerts") {
				t.Errorf("after live%s: %s: %d values, %v", which, where, got, err)
			}
		})
	}
	emptyOnes(look(s), " alone")
	// One mode of the two: what shows the other is empty, too.
	chosen := look(s)
	chosen.mode = "broken"
	other = append(other, "Wait time: A", "Wait time: B", "Latency, fixed")
	emptyOnes(chosen, ", with broken chosen")
}

// What is done in the background is stored, too.
func TestTrafficOfEarlyAndStaleIsStoredAsItWasPrinted(t *testing.T) {
	s := startServers(t)
	for _, mode := range []string{"early", "stale"} {
		r := s.lab(t, mode, "--for", "5s", "--ttl", "1s", "--lock-ttl", "1s", "--backend-latency", "50ms")
		if r.code != 0 {
			t.Fatal(r.out)
		}
		v := s.lab(t, "verify")
		if v.code != 0 || !strings.Contains(v.out, "the app, Redis, Jaeger and Prometheus agree") {
			t.Fatalf("verify of %s: exit %d:\n%s", mode, v.code, v.out)
		}
	}
}

// --verify verifies each run of several right after it. Without a stack there is nothing to compare, and that is an error.
func TestRunsAreVerifiedRightAfterTheirEnd(t *testing.T) {
	s := startServers(t)
	for want, args := range map[int][]string{
		4: {"compare", "--modes", "broken,coalesced,fixed,woken", "--ttl", "500ms", "--rounds", "2", "--verify",
			"--jaeger-url", "http://127.0.0.1:1", "--jaeger-api", s.jaeger}, // the page need not be where the API is
		2: {"live", "--for", "4s", "--each", "2s", "--ttl", "500ms", "--verify"},
	} {
		r := s.lab(t, args...)
		if n := strings.Count(r.out, "the app, Redis, Jaeger and Prometheus agree"); r.code != 0 || n != want {
			t.Errorf("%q: exit %d, %d modes agree, want %d:\n%s", args, r.code, n, want, r.out)
		}
	}
	r := s.lab(t, "fixed", "--rounds", "1", "--telemetry", "off", "--verify")
	if r.code != 1 || !strings.Contains(r.out, "sent no spans: telemetry was off") {
		t.Errorf("without telemetry: exit %d:\n%s", r.code, r.out)
	}
}

// The tour of grafana/README.md: what each step says is there to be seen. The panels' values are TestDashboards' matter.
func TestTheTourLeadsWhereItSays(t *testing.T) {
	s := startServers(t)
	type span struct {
		SpanID, OperationName string
		References            []struct{ RefType, SpanID string }
		Tags                  []struct {
			Key   string
			Value any
		}
	}
	trace := func(id string) map[string][]span {
		var traces struct{ Data []struct{ Spans []span } }
		if err := get(t, s.jaeger+"/api/traces/"+id, &traces); err != nil {
			t.Fatal(err)
		}
		named := map[string][]span{}
		for _, span := range traces.Data[0].Spans {
			named[span.OperationName] = append(named[span.OperationName], span)
		}
		return named
	}
	tag := func(s span, key string) any {
		for _, t := range s.Tags {
			if t.Key == key {
				return t.Value
			}
		}
		return nil
	}

	broken := s.lab(t, "broken", "--rounds", "1")
	s.checkExemplars(t, broken)
	spans := trace(broken.json.TraceIDs[0][0])
	if len(spans["worker"]) != 50 || len(spans["MISS"]) != 50 || len(spans["backend call"]) != 50 {
		t.Errorf("broken: %d workers, %d misses, %d backend calls, want 50 of each", len(spans["worker"]), len(spans["MISS"]), len(spans["backend call"]))
	}
	queued := 0
	for _, call := range spans["backend call"] {
		if ms, _ := tag(call, "queued_ms").(float64); ms > 200 {
			queued++
		}
	}
	if queued != 40 {
		t.Errorf("broken: %d calls queued for a fill's time or more, want 40", queued)
	}

	fixed := s.lab(t, "fixed", "--rounds", "1")
	spans = trace(fixed.json.TraceIDs[0][0])
	winners := map[string]span{}
	filled := 0
	for _, miss := range spans["MISS"] {
		if tag(miss, "outcome") == "filled" {
			filled++
		}
		if tag(miss, "waiters") != nil {
			winners[miss.SpanID] = miss
		}
	}
	if filled != 1 || len(spans["backend call"]) != 1 {
		t.Errorf("fixed: %d filled, %d backend calls, want 1", filled, len(spans["backend call"]))
	}
	for _, wait := range spans["wait for fill"] {
		linked := false
		for _, r := range wait.References {
			_, winner := winners[r.SpanID]
			linked = linked || r.RefType == "FOLLOWS_FROM" && winner
		}
		if !linked {
			t.Error("fixed: a waiter without a link to a winner's MISS")
		}
	}
}

func TestARunOfASecondIsStoredToTheLastCount(t *testing.T) {
	s := startServers(t)
	r := s.lab(t, "fixed", "--rounds", "1", "--workers", "20")
	total := s.query(t, fmt.Sprintf(`sum(last_over_time(cachelab_polls_total{cachelab_run=%q}[5m]))`, r.json.Run))
	if !slices.Equal(total, []float64{float64(r.json.Polls)}) {
		t.Errorf("Prometheus holds %v polls, the run printed %d", total, r.json.Polls)
	}
}

func TestTwoBrokenRunsInARowDrawExactBarsAndNoNegativeOne(t *testing.T) {
	s := startServers(t)
	from := time.Now()
	for range 2 {
		if r := s.lab(t, "broken", "--rounds", "2", "--ttl", "1500ms"); r.code != 0 {
			t.Fatal(r.out)
		}
	}
	// The dashboard's query: subtract per series, then sum. A series that began just now has no sample a second ago;
	// its first sample is 0, so nothing is lost.
	bars := s.queryRange(t, `sum by (mode) (cachelab_backend_calls_total - (cachelab_backend_calls_total offset 1s))`, from, time.Now().Add(5*time.Second))
	sum := 0.0
	for _, bar := range bars {
		sum += bar
		if bar < 0 {
			t.Errorf("a bar of %v", bar)
		}
	}
	if sum != 200 {
		t.Errorf("the bars add up to %v, want the 200 calls of two runs: %v", sum, bars)
	}
}

func TestVerifySeesOneChangedSpanSampleAndCount(t *testing.T) {
	s := startServers(t)
	r := s.lab(t, "fixed", "--rounds", "2", "--workers", "10", "--ttl", "300ms")
	if v := s.lab(t, "verify"); v.code != 0 {
		t.Fatalf("before the changes:\n%s", v.out)
	}
	differs := func(what, row string) {
		t.Helper()
		v := s.lab(t, "verify", "--patience", "0s")
		rows := regexp.MustCompile(`(?m)^│ (.+?) +│.*│ +differs │$`).FindAllStringSubmatch(v.out, -1)
		if v.code != 3 || len(rows) == 0 || !slices.ContainsFunc(rows, func(m []string) bool { return m[1] == row }) {
			t.Errorf("with one %s changed: exit %d, %q differ:\n%s", what, v.code, rows, v.out)
		}
	}
	record, err := filepath.Glob(filepath.Join(s.records, "*.json"))
	if err != nil || len(record) != 1 {
		t.Fatal(record, err)
	}
	original := read(t, record[0])
	changed := regexp.MustCompile(`"eval": \d+`).ReplaceAllString(original, `"eval": 99`)
	if err := os.WriteFile(record[0], []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	differs("Redis count", "DEL (EVAL)")
	if err := os.WriteFile(record[0], []byte(original), 0o644); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	post(t, s.prometheus+"/api/v1/otlp/v1/metrics", fmt.Sprintf(`{"resourceMetrics":[{"resource":{"attributes":[
		{"key":"service.name","value":{"stringValue":"cachelab"}},{"key":"cachelab.run","value":{"stringValue":%q}}]},
		"scopeMetrics":[{"metrics":[{"name":"cachelab.polls","unit":"{poll}","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[
		{"asInt":"%d","timeUnixNano":"%d","attributes":[{"key":"mode","value":{"stringValue":"fixed"}}]}]}}]}]}]}`,
		r.json.Run, r.json.Polls+1, now))
	differs("sample", "polls")
	post(t, s.otlp+"/v1/traces", fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"cachelab"}}]},
		"scopeSpans":[{"spans":[{"traceId":%q,"spanId":"00000000000000aa","name":"backend call","kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d"}]}]}]}`,
		r.json.TraceIDs[0][0], now, now))
	differs("span", "backend calls")
}

func TestAStackThatDiesInTheMiddleChangesNoVerdict(t *testing.T) {
	for name, victim := range map[string]func(*servers) *process{
		"Jaeger":     func(s *servers) *process { return s.jaegerProcess },
		"Prometheus": func(s *servers) *process { return s.prometheusProcess },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServers(t)
			timer := time.AfterFunc(1500*time.Millisecond, func() { victim(s).kill() })
			defer timer.Stop()
			r := s.lab(t, "fixed", "--rounds", "4", "--ttl", "600ms")
			if r.code != 0 || !r.json.Verdict.OK || !strings.Contains(r.out, "not delivered: export ") {
				t.Errorf("exit %d, verdict %v:\n%s", r.code, r.json.Verdict.OK, r.out)
			}
			if r.json.Overhead > 2 {
				t.Errorf("overhead %.2f s, want under 2", r.json.Overhead)
			}
			v := s.lab(t, "verify", "--patience", "0s")
			if v.code != 1 || !strings.Contains(v.out, name+": ") || !strings.Contains(v.out, "connection refused") {
				t.Errorf("verify without %s: exit %d:\n%s", name, v.code, v.out)
			}
		})
	}
}

func TestVerifySaysWhyThereIsNothingToCompare(t *testing.T) {
	s := startServers(t)
	refuses := func(want string) {
		t.Helper()
		v := s.lab(t, "verify", "--patience", "0s")
		if v.code != 1 || !strings.Contains(v.out, want) {
			t.Errorf("exit %d, want %q in:\n%s", v.code, want, v.out)
		}
	}
	refuses("no run is recorded in ")
	s.lab(t, "fixed", "--rounds", "1", "--workers", "2", "--telemetry", "off")
	refuses("sent no spans: telemetry was off")
	s.lab(t, "fixed", "--rounds", "1", "--workers", "2")
	wiped := startServers(t)
	wiped.records = s.records
	s = wiped
	refuses("the stack was wiped or restarted since")
	if v := s.lab(t, "verify", "--run", "another"); v.code != 1 || !strings.Contains(v.out, `no run is recorded as "another"`) {
		t.Errorf("exit %d:\n%s", v.code, v.out)
	}
}

func find1(t *testing.T, text, expression string) string {
	t.Helper()
	m := regexp.MustCompile(expression).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in:\n%s", expression, text)
	}
	return m[1]
}
