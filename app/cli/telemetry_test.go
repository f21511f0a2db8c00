package cli_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/telemetry/otlptest"
)

func TestARunDeliversItsSpansAndSaysWhereToLook(t *testing.T) {
	receiver := otlptest.Start(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "CACHELAB_JAEGER_URL": "http://jaeger.example:1234/",
		"CACHELAB_GRAFANA_URL": "http://grafana.example"}
	out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "on", "--json", "-", "--quiet", "--ttl", "300ms", "--rounds", "3")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	checkFixed(t, r, 3)
	equal(t, "exported", r.Spans.Exported, r.Spans.Ended)
	equal(t, "dropped", r.Spans.Dropped, 0)
	equal(t, "received", len(receiver.Spans()), r.Spans.Ended)
	equal(t, "rounds with traces", len(r.TraceIDs), 3)
	known := map[string]int{}
	for _, s := range receiver.Spans() {
		known[hex.EncodeToString(s.TraceId)]++
		equal(t, "run of the resource", s.Resource["cachelab.run"], r.ID)
	}
	for _, ids := range r.TraceIDs {
		equal(t, "slices", len(ids), 1)
		if n := known[ids[0]]; n == 0 || n >= 1000 {
			t.Errorf("trace %s has %d spans", ids[0], n)
		}
		if !strings.Contains(out.stderr, "http://jaeger.example:1234/trace/"+ids[0]+"\n") {
			t.Errorf("trace %s is not linked to", ids[0])
		}
	}
	if !strings.Contains(out.stderr, "http://grafana.example/d/thundering-herd") {
		t.Error("Grafana is not linked to")
	}
}

// A trace stays small, too.
func TestLoadDropsNoSpanAndKeepsTracesSmall(t *testing.T) {
	receiver := otlptest.Start(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	out := run(t.Context(), t, env, "load", "--redis", "embedded", "--json", "-", "--ttl", "500ms", "--rounds", "3")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	equal(t, "dropped", r.Spans.Dropped, 0)
	equal(t, "received", len(receiver.Spans()), r.Spans.Ended)
	perTrace := map[string]int{}
	for _, s := range receiver.Spans() {
		perTrace[string(s.TraceId)]++
	}
	equal(t, "traces", len(perTrace), 3*10)
	for _, n := range perTrace {
		if n > 2000 {
			t.Errorf("a trace has %d spans, want at most 2,000", n)
		}
	}
}

func TestAReceiverThatFailsChangesNeitherVerdictNorExit(t *testing.T) {
	t.Parallel()
	silent := otlptest.Start(t)
	silent.Silence(true)
	for name, url := range map[string]string{"none": "http://127.0.0.1:1", "one that never answers": silent.URL} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url}
			out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--json", "-", "--quiet", "--rounds", "1")
			r := decode(t, out.stdout)
			checkFixed(t, r, 1)
			if r.Overhead > 2.5 || strings.Contains(out.stderr, "where to look") || strings.Count(out.stderr, "telemetry: nobody takes traces at ") != 1 {
				t.Errorf("overhead %.3f s, printed:\n%s", r.Overhead, out.stderr)
			}
		})
	}
	for name, die := range map[string]func(*otlptest.Receiver){
		"dies in the middle":     func(r *otlptest.Receiver) { r.Stop() },
		"falls silent, likewise": func(r *otlptest.Receiver) { r.Silence(true) },
	} {
		t.Run(name, func(t *testing.T) {
			receiver := otlptest.Start(t)
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
			timer := time.AfterFunc(700*time.Millisecond, func() { die(receiver) })
			defer timer.Stop()
			out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--json", "-", "--quiet", "--rounds", "3", "--ttl", "500ms")
			equal(t, "exit code", out.code, cli.ExitOK)
			r := decode(t, out.stdout)
			checkFixed(t, r, 3)
			if r.Overhead > 4 { // 2 s on a machine that has nothing else to do: the end-to-end test looks at that
				t.Errorf("overhead %.3f s, want under 4", r.Overhead)
			}
			if r.Spans.Dropped == 0 || r.Spans.Ended != r.Spans.Exported+r.Spans.Dropped {
				t.Errorf("spans: %+v", r.Spans)
			}
			for _, want := range []string{"the traces of this run are incomplete", "not delivered: export spans", "not delivered: export metrics"} {
				if !strings.Contains(out.stderr, want) {
					t.Errorf("not said: %q in:\n%s", want, out.stderr)
				}
			}
		})
	}
}

func TestTelemetryThatCannotWorkIsAnErrorBeforeTheRun(t *testing.T) {
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317"}
	out := run(t.Context(), t, env, "fixed", "--redis", "embedded")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if strings.Contains(out.stdout, "GET MISS") || !strings.Contains(out.stderr, "want a URL with its scheme") {
		t.Errorf("printed:\n%s%s", out.stdout, out.stderr)
	}
}

// Two processes on one Redis: the waiters of one are linked to the winner in the other.
func TestWaitersAreLinkedAcrossProcesses(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "cachelab")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "cachelab/app").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	receiver := otlptest.Start(t)
	server := redistest.Start(t)
	// Both wait for the expiry of the same key, so their rounds fall together.
	processes := make([]*exec.Cmd, 2)
	for i := range processes {
		p := exec.CommandContext(t.Context(), binary, "fixed", "--redis", server.URL(), "--workers", "20", "--rounds", "6", "--ttl", "500ms",
			"--quiet", "--json", filepath.Join(t.TempDir(), "run"+strconv.Itoa(i)+".json"))
		p.Env = append(os.Environ(), "CACHELAB_RECORDS=", "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
		processes[i] = p
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	calls, expiries := 0, 0
	for _, p := range processes {
		if err := p.Wait(); err != nil {
			t.Errorf("%v", err)
		}
		text, err := os.ReadFile(p.Args[len(p.Args)-1])
		if err != nil {
			t.Fatal(err)
		}
		var r facts.Run
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		equal(t, "Redis's counts", r.RedisCommands.Standing, "shared")
		calls += r.BackendCalls
		expiries += r.Expiries
	}
	equal(t, "backend calls of both", calls, expiries)

	miss := map[string]otlptest.Span{}
	for _, s := range receiver.Spans() {
		if s.Name == "MISS" {
			miss[string(s.SpanId)] = s
		}
	}
	across := 0
	for _, s := range receiver.Spans() {
		for _, link := range s.Links {
			winner, ok := miss[string(link.SpanId)]
			if s.Name != "wait for fill" || !ok || string(winner.TraceId) != string(link.TraceId) {
				t.Fatalf("%s is linked to %s", s.Name, hex.EncodeToString(link.SpanId))
			}
			if winner.Resource["service.instance.id"] != s.Resource["service.instance.id"] {
				across++
			}
		}
	}
	if across < 20 {
		t.Errorf("%d waiters are linked to a winner in the other process, want the 20 of at least one round", across)
	}
	t.Logf("%d links across processes", across)
}

// A sampler leaves rounds out; those that are there keep their numbers.
func TestTheLinkOfASampledRoundLeadsToThatRound(t *testing.T) {
	receiver := otlptest.Start(t)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
	const rounds = 12
	out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "on", "--json", "-", "--quiet", "--ttl", "30ms",
		"--backend-latency", "5ms", "--workers", "2", "--rounds", fmt.Sprint(rounds))
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	equal(t, "rounds in the JSON", len(r.TraceIDs), rounds)
	roundOf := map[string]int64{}
	for _, s := range receiver.Spans() {
		if s.Name == "round fixed" {
			for _, a := range s.Attributes {
				if a.Key == "round" {
					roundOf[hex.EncodeToString(s.TraceId)] = a.Value.GetIntValue()
				}
			}
		}
	}
	for i, ids := range r.TraceIDs {
		if len(ids) > 0 && roundOf[ids[0]] != int64(i+1) {
			t.Errorf("the trace of round %d in the JSON is round %d's", i+1, roundOf[ids[0]])
		}
	}
	links := regexp.MustCompile(`round (\d+)  \S+/trace/(\w+)`).FindAllStringSubmatch(out.stderr, -1)
	equal(t, "links", len(links), min(len(roundOf), facts.MaxLinks))
	for _, link := range links {
		equal(t, "the round that a link leads to", fmt.Sprint(roundOf[link[2]]), link[1])
	}
}
