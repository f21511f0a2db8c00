package drill_test

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"cachelab/app/cli"
	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
	"cachelab/telemetry/otlptest"
)

// TestMain lets the test's own binary be the winner's process of dead-winner.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == lab.ProcessCommand {
		os.Exit(cli.Main(context.Background(), cli.Process{Args: os.Args[1:], LookupEnv: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr, Modes: modes.All()}))
	}
	os.Exit(m.Run())
}

// output is what a run of the program left behind.
type output struct {
	code           int
	stdout, stderr string
}

// program runs the program in this process, as main does, with OTLP sent to the receiver; nil for nowhere.
func program(t *testing.T, receiver *otlptest.Receiver, args ...string) output {
	t.Helper()
	env := map[string]string{"CACHELAB_TELEMETRY": "off"}
	if receiver != nil {
		env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "CACHELAB_TELEMETRY": "on"}
	}
	var files [2]*os.File
	for i := range files {
		file, err := os.Create(filepath.Join(t.TempDir(), "output"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		files[i] = file
	}
	code := cli.Main(t.Context(), cli.Process{
		Args: args,
		LookupEnv: func(name string) (string, bool) {
			if name == "CACHELAB_RECORDS" {
				return "", true
			}
			value, ok := env[name]
			return value, ok
		},
		Stdout: files[0],
		Stderr: files[1],
		Modes:  modes.All(),
	})
	read := func(file *os.File) string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return output{code, read(files[0]), read(files[1])}
}

func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return value
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func between(t *testing.T, what string, got, low, high int) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: got %d, want %d to %d", what, got, low, high)
	}
}

// drilled is a drill that was run, with all that it left behind.
type drilled struct {
	facts.Run
	printed string
	spans   []otlptest.Span
}

// do runs a drill and checks what holds for all of them.
func do(t *testing.T, redis, name string, args ...string) drilled {
	t.Helper()
	receiver := otlptest.Start(t)
	out := program(t, receiver, append([]string{"drill", name, "--redis", redis, "--json", "-", "--quiet=false"}, args...)...)
	d := drilled{decode[facts.Run](t, out.stdout), out.stderr, receiver.Spans()}
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "verdict ok", d.Verdict.OK, true)
	equal(t, "drill", d.Drill, name)
	all := drill.All()
	about := all[slices.IndexFunc(all, func(d drill.Drill) bool { return d.Name == name })]
	equal(t, "mode", d.Mode, cmp.Or(about.Mode, "fixed"))
	equal(t, "scenario", d.Scenario, modes.Drill(name))
	if t.Failed() {
		t.Logf("verdict: %s", d.Verdict.Text)
	}

	equal(t, "spans exported", d.Spans.Exported, d.Spans.Ended)
	equal(t, "spans received", len(d.spans), d.Spans.Ended)
	perTrace, commands, faults := map[string]int{}, map[string]int{}, 0
	for _, s := range d.spans {
		perTrace[string(s.TraceId)]++
		if slices.Contains([]string{"GET", "SET", "SET NX PX", "DEL", "SET, DEL", "PUBLISH"}, s.Name) {
			commands[s.Name]++
		}
		kind := ""
		for _, a := range s.Attributes {
			if a.Key == "error.type" {
				kind = a.Value.GetStringValue()
			}
		}
		if failed := s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR; failed != (kind != "") {
			t.Errorf("%s has the status %v and error.type %q", s.Name, s.Status, kind)
		}
		if kind == telemetry.OtherError && name != "dead-winner" { // a process that is killed is of no known kind
			t.Errorf("%s failed: %s", s.Name, s.Status.GetMessage())
		}
		for _, e := range s.Events {
			if e.Name == "fault" {
				faults++
			}
		}
	}
	most := slices.Max(slices.Collect(maps.Values(perTrace)))
	t.Logf("largest trace: %d spans; %s", most, d.Verdict.Text)
	if most > 2000 {
		t.Errorf("a trace has %d spans, want at most 2,000", most)
	}
	if faults == 0 || !strings.Contains(d.printed, " FAULT: ") {
		t.Errorf("%d spans have an event for the fault, and printed was:\n%s", faults, d.printed)
	}
	d.checkMetrics(t, receiver, commands)
	return d
}

// checkMetrics compares the last push with the ledger and the spans.
func (d drilled) checkMetrics(t *testing.T, receiver *otlptest.Receiver, commands map[string]int) {
	t.Helper()
	pushes := receiver.Pushes()
	if len(pushes) == 0 {
		t.Fatal("no metrics were received")
	}
	got := map[string]int{}
	for _, rm := range pushes[len(pushes)-1] {
		for _, scope := range rm.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, p := range m.GetSum().GetDataPoints() {
					got[m.Name+label(p, "result")+label(p, "command")+label(p, "outcome")] += int(p.GetAsInt())
					if strings.HasPrefix(m.Name, "cachelab.") {
						equal(t, "mode of "+m.Name, label(p, "mode"), " "+d.Mode)
						equal(t, "scenario of "+m.Name, label(p, "scenario"), " "+string(d.Scenario))
					}
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					got[m.Name] += int(p.Count)
				}
			}
		}
	}
	want := map[string]int{
		"cachelab.backend.calls":      d.BackendCalls,
		"cachelab.backend.answers ok": d.BackendCalls - d.BackendErrors,
		"cachelab.backend.duration":   d.BackendCalls, "cachelab.requests error": d.Outcomes["error"],
		"cachelab.lock.releases lost": d.Lock.Lost, "cachelab.lock.attempts acquired": d.Lock.Acquired,
		"cachelab.expiries": d.Expiries, "cachelab.rounds": d.Rounds,
	}
	for name, n := range commands {
		want["cachelab.redis.commands "+name] = n
	}
	for name, n := range want {
		equal(t, name, got[name], n)
	}
	equal(t, "answers error or unknown", got["cachelab.backend.answers error"]+got["cachelab.backend.answers unknown"], d.BackendErrors)
}

func label(p *metricspb.NumberDataPoint, key string) string {
	for _, a := range p.Attributes {
		if a.Key == key {
			return " " + a.Value.GetStringValue()
		}
	}
	return ""
}

// checkCommands compares Redis's count, the spans and the ledger. A lock that died with its winner has no DEL.
func (d drilled) checkCommands(t *testing.T, standing redisstore.Standing, dead int) {
	t.Helper()
	fills, together := d.BackendCalls-d.BackendErrors, 0
	if d.Mode != "fixed" && d.Lock.Acquired > 0 { // it stores and releases in one command
		fills, together = 0, fills
	}
	releases := d.Lock.Acquired - dead - together
	want := redisstore.CommandGet.Adds(d.Gets.Hit+d.Gets.Miss, 0, 0).
		Plus(redisstore.CommandLock.Adds(d.Lock.Acquired+d.Lock.Held, 0, 0)).
		Plus(redisstore.CommandSet.Adds(fills, 0, 0)).
		Plus(redisstore.CommandStoreAndUnlock.Adds(together, together-d.SetsLate, 0)).
		Plus(redisstore.CommandUnlock.Adds(releases, 0, d.Lock.Released))
	if d.Mode == "woken" {
		want = want.Plus(redisstore.CommandPublish.Adds(d.Lock.Acquired, 0, 0)) // each winner rings
	}
	equal(t, "Redis counted", d.RedisCommands, facts.RedisCommands{Commands: want, Standing: standing})
	spans := map[string]int{}
	for _, s := range d.spans {
		spans[s.Name]++
	}
	equal(t, "GET and DEL spans", spans["GET"]+spans["DEL"]+spans["SET, DEL"], want.Get)
	equal(t, "SET spans", spans["SET"]+spans["SET NX PX"]+spans["SET, DEL"]-d.SetsLate, want.Set)
	equal(t, "backend call spans", spans["backend call"], d.BackendCalls)
}

// onBoth runs a test on a real Redis and on the embedded one. On the real one a fixed run afterwards must be
// clean, and in the end nothing is left.
func onBoth(t *testing.T, test func(t *testing.T, redis string)) {
	t.Parallel()
	t.Run("redis-server", func(t *testing.T) { t.Parallel(); onReal(t, test) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, "embedded") })
}

func onReal(t *testing.T, test func(t *testing.T, redis string)) {
	server := redistest.Start(t)
	test(t, server.URL())
	after := program(t, nil, "fixed", "--redis", server.URL(), "--workers", "20", "--rounds", "2", "--ttl", "300ms", "--backend-latency", "50ms",
		"--json", "-", "--quiet")
	r := decode[facts.Run](t, after.stdout)
	if after.code != cli.ExitOK || r.BackendCalls != 2 || r.Expiries != 2 || r.Lock.Lost != 0 || strings.Contains(after.stderr, "the fill lock is held") {
		t.Errorf("the fixed run after the drill: %+v\n%s", r, after.stderr)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for deadline := time.Now().Add(6 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		keys, err := client.Keys(t.Context(), "*").Result()
		if err == nil && len(keys) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left in Redis: %q, %v", keys, err)
		}
	}
}
