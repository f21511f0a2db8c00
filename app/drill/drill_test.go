package drill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"cachelab/app/cli"
	"cachelab/app/drill"
	"cachelab/app/internal/redistest"
	"cachelab/app/lab"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/telemetry/otlptest"
)

// TestMain lets the test's own binary be the winner's process of dead-winner.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == lab.WinnerCommand {
		os.Exit(cli.Main(context.Background(), cli.Process{Args: os.Args[1:], LookupEnv: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr}))
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
		Args:      args,
		LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		Stdout:    files[0],
		Stderr:    files[1],
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
	report.Run
	printed string
	spans   []otlptest.Span
}

// do runs a drill and checks what holds for all of them.
func do(t *testing.T, redis, name string, args ...string) drilled {
	t.Helper()
	receiver := otlptest.Start(t)
	out := program(t, receiver, append([]string{"drill", name, "--redis", redis, "--json", "-", "--quiet=false"}, args...)...)
	d := drilled{decode[report.Run](t, out.stdout), out.stderr, receiver.Spans()}
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "verdict ok", d.Verdict.OK, true)
	equal(t, "drill", d.Drill, name)
	equal(t, "mode", d.Mode, "drill-"+name)
	if t.Failed() {
		t.Logf("verdict: %s", d.Verdict.Text)
	}

	equal(t, "spans exported", d.Spans.Exported, d.Spans.Ended)
	equal(t, "spans received", len(d.spans), d.Spans.Ended)
	perTrace, commands, faults := map[string]int{}, map[string]int{}, 0
	for _, s := range d.spans {
		perTrace[string(s.TraceId)]++
		if slices.Contains([]string{"GET", "SET", "SET NX PX", "DEL"}, s.Name) {
			commands[s.Name]++
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
					}
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					got[m.Name] += int(p.Count)
				}
			}
		}
	}
	want := map[string]int{
		"cachelab.backend.calls ok": d.BackendCalls - d.BackendErrors, "cachelab.backend.calls error": d.BackendErrors,
		"cachelab.backend.duration": d.BackendCalls, "cachelab.requests error": d.Outcomes["error"],
		"cachelab.lock.releases lost": d.Lock.Lost, "cachelab.lock.attempts acquired": d.Lock.Acquired,
		"cachelab.expiries": d.Expiries, "cachelab.rounds": d.Rounds,
	}
	for name, n := range commands {
		want["cachelab.redis.commands "+name] = n
	}
	for name, n := range want {
		equal(t, name, got[name], n)
	}
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
	releases := d.Lock.Acquired - dead
	want := redisstore.Commands{
		Get: d.Gets.Hit + d.Gets.Miss + releases, Set: d.Lock.Acquired + d.Lock.Held + d.BackendCalls - d.BackendErrors,
		Eval: releases, Del: d.Lock.Released,
	}
	equal(t, "Redis counted", d.RedisCommands, report.RedisCommands{Commands: want, Standing: standing})
	spans := map[string]int{}
	for _, s := range d.spans {
		spans[s.Name]++
	}
	equal(t, "GET and DEL spans", spans["GET"]+spans["DEL"], want.Get)
	equal(t, "SET spans", spans["SET"]+spans["SET NX PX"], want.Set)
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
	r := decode[report.Run](t, after.stdout)
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

func TestColdStart(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "cold-start")
		equal(t, "backend calls", d.BackendCalls, 3)
		equal(t, "expiries", d.Expiries, 3)
		equal(t, "filled", d.Outcomes["filled"], 3)
		equal(t, "errors", d.Outcomes["error"], 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestSlowFill(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "slow-fill")
		between(t, "backend calls", d.BackendCalls, 3*2, 3*4) // a TTL of 300 ms ends three times in a fill of 1 s
		between(t, "peak", d.BackendPeak, 2, 4)
		equal(t, "expiries", d.Expiries, 3)
		equal(t, "lost", d.Lock.Lost, d.BackendCalls)
		equal(t, "released", d.Lock.Released, d.Lock.Rechecked)
		equal(t, "errors", d.Outcomes["error"], 0)
		if !strings.Contains(d.printed, "DEL refused, the next winner's lock lives on for ") {
			t.Error("no lock was seen to survive")
		}
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestBackendError(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "backend-error")
		equal(t, "backend calls", d.BackendCalls, 2+20+1)
		equal(t, "backend errors", d.BackendErrors, 1+20)
		equal(t, "peak", d.BackendPeak, 1)
		equal(t, "errors", d.Outcomes["error"], 1+20)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "waited", d.Outcomes["waited"], 18+19)
		equal(t, "expiries", d.Expiries, 2) // the cycle that failed ends in the next round
		equal(t, "released", d.Lock.Released, d.Lock.Acquired)
		equal(t, "store errors", d.StoreErrors, 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestCancelledWinner(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "cancelled-winner")
		equal(t, "backend calls", d.BackendCalls, 2*2)
		equal(t, "backend errors", d.BackendErrors, 2)
		equal(t, "peak", d.BackendPeak, 1)
		equal(t, "errors", d.Outcomes["error"], 2)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "expiries", d.Expiries, 2)
		equal(t, "released", d.Lock.Released, d.Lock.Acquired)
		equal(t, "store errors", d.StoreErrors, 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestDeadWinnerKillsAProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "dead-winner")
		equal(t, "backend calls", d.BackendCalls, 2+1)
		equal(t, "backend errors", d.BackendErrors, 1)
		equal(t, "errors", d.Outcomes["error"], 1)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "expiries", d.Expiries, 2)
		equal(t, "released", d.Lock.Released, d.Lock.Acquired-1)
		equal(t, "lost", d.Lock.Lost, 0)
		standing := redisstore.Exact
		if redis != "embedded" {
			standing = redisstore.Shared // another process did use the server; the numbers agree all the same
		}
		d.checkCommands(t, standing, 1)

		pid := regexp.MustCompile(`this worker is process (\d+)`).FindStringSubmatch(d.printed)
		if pid == nil || !strings.Contains(d.Verdict.Text, "process "+pid[1]+" won and was killed in mid-fill (signal: killed)") {
			t.Fatalf("process %q, verdict %q", pid, d.Verdict.Text)
		}
		process, _ := strconv.Atoi(pid[1])
		if err := syscall.Kill(process, 0); err != syscall.ESRCH {
			t.Errorf("process %d: %v, want none", process, err)
		}
		// The waiters are linked to the dead winner's MISS, whose steps are spans that name the process.
		miss, reported := "", 0
		for _, s := range d.spans {
			for _, a := range s.Attributes {
				if a.Key == "process.pid" && a.Value.GetIntValue() == int64(process) {
					reported++
					if s.Name == "backend call" {
						miss = string(s.ParentSpanId)
					}
				}
			}
		}
		equal(t, "reported spans", reported, 4) // GET, SET NX PX, GET, backend call
		links := 0
		for _, s := range d.spans {
			for _, link := range s.Links {
				if string(link.SpanId) == miss {
					links++
				}
			}
		}
		equal(t, "waiters linked to the dead winner", links, 19)
	})
}

func TestLostRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "lost-redis")
		equal(t, "rounds", d.Rounds, 3)
		equal(t, "backend calls", d.BackendCalls, 3)
		equal(t, "backend calls without a lock", d.BackendCalls-(d.Lock.Acquired-d.Lock.Rechecked), 0)
		equal(t, "filled", d.Outcomes["filled"], 3)
		equal(t, "errors", d.Outcomes["error"], 49)
		equal(t, "expiries", d.Expiries, 2) // the fill of the outage was not stored
		equal(t, "lost", d.Lock.Lost, 1)
		between(t, "store errors", d.StoreErrors, 49, 49*6+4) // a worker gives up at its third, and 3 x DEL if its lock may be there; the winner: SET and 3 x DEL
		equal(t, "Redis counted", d.RedisCommands.Standing, redisstore.NotAvailable)
		if redis == "embedded" {
			equal(t, "redis", d.Redis, "embedded")
			return
		}
		if d.Redis == redis {
			t.Error("the drill stopped a server that is not its own")
		}
		address, err := url.Parse(d.Redis)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", address.Host); err == nil {
			conn.Close()
			t.Error("the drill's own redis-server is still there")
		}
	})
}

func TestManyKeys(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, redis string) {
		d := do(t, redis, "many-keys")
		equal(t, "backend calls", d.BackendCalls, 600)
		equal(t, "expiries", d.Expiries, 600)
		equal(t, "filled", d.Outcomes["filled"], 600)
		equal(t, "released", d.Lock.Released, 600)
		d.checkCommands(t, redisstore.Exact, 0)
		number := `(\d+(?:\.\d)?)`
		m := regexp.MustCompile(fmt.Sprintf(`200 keys with one TTL: %[1]s calls in flight at peak, %[1]s a second; with 20%% jitter: %[1]s and %[1]s, which is %[1]s and %[1]s times less$`,
			number)).FindStringSubmatch(d.Verdict.Text)
		if m == nil {
			t.Fatalf("verdict: %s", d.Verdict.Text)
		}
		n := make([]float64, len(m))
		for i := range m[1:] {
			n[i+1], _ = strconv.ParseFloat(m[i+1], 64)
		}
		between(t, "calls in flight without jitter", int(n[1]), 80, 200)
		between(t, "calls in flight with jitter", int(n[3]), 15, 100) // 200 x 150 ms, spread over 2 s: 15 at any time
	})
}

func TestNoRecheck(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, redis string) {
		d := do(t, redis, "no-recheck", "--rounds", "11")
		equal(t, "expiries", d.Expiries, 11)
		equal(t, "re-checks that hit", d.Lock.Rechecked, 0)
		equal(t, "locks", d.Lock.Acquired, d.BackendCalls)
		if d.BackendCalls < 11+5 || !strings.Contains(d.Verdict.Text, ": with 5 workers held before their lock 6 calls where 1 would do; ") ||
			!strings.HasSuffix(d.Verdict.Text, fmt.Sprintf("; %d calls too many in 10 rounds left to nature", d.BackendCalls-11-5)) {
			t.Errorf("%d calls: %s", d.BackendCalls, d.Verdict.Text)
		}
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

// A drill whose fault does not happen, or does more harm than expected, is not ok.
func TestVerdictsThatAreNotOk(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"slow-fill", "--lock-ttl", "5s", "--backend-latency", "50ms"}, "but 1 calls in round 1, not 2 to 1"},
		{[]string{"cancelled-winner", "--workers", "1"}, "more than one worker"},
		{[]string{"cancelled-winner", "--backend-latency", "0s", "--ttl", "300ms"}, "but round "},
		{[]string{"backend-error", "--wait-timeout", "20ms"}, "but round 1 had "},
		{[]string{"dead-winner", "--lock-ttl", "2s", "--wait-timeout", "300ms"}, "but 1 calls, 1 of them failed"},
		{[]string{"many-keys", "--ttl-jitter", "0", "--ttl", "1s"}, "but the jitter did not halve the peaks"},
		{[]string{"no-recheck", "--rounds", "1", "--workers", "4"}, "more than 5 workers"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			out := program(t, nil, append([]string{"drill"}, append(test.args, "--redis", "embedded", "--quiet")...)...)
			equal(t, "exit code", out.code, cli.ExitVerdict)
			if !strings.Contains(out.stdout, "verdict: not ok, ") || !strings.Contains(out.stdout, test.want) {
				t.Errorf("no %q in:\n%s%s", test.want, out.stdout, out.stderr)
			}
		})
	}
}

func TestAnUnknownDrillListsTheKnownOnes(t *testing.T) {
	for _, args := range [][]string{{"drill", "earthquake"}, {"drill"}} {
		out := program(t, nil, args...)
		equal(t, "exit code", out.code, cli.ExitUsage)
		for _, d := range drill.All() {
			if !strings.Contains(out.stderr, fmt.Sprintf("\n  %-16s %s\n", d.Name, d.Short)) {
				t.Errorf("%s is not in:\n%s", d.Name, out.stderr)
			}
		}
	}
	for _, args := range [][]string{{"drill", "all", "now"}, {"drill", "slow-fill", "now"}, {"drill", "slow-fill", "--rounds", "9"}} {
		equal(t, fmt.Sprint(args), program(t, nil, args...).code, cli.ExitUsage)
	}
}

func TestWithoutARedisServerLostRedisUsesTheEmbeddedOne(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out := program(t, nil, "drill", "lost-redis", "--redis", "redis://127.0.0.1:1", "--workers", "10", "--quiet", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "redis", decode[report.Run](t, out.stdout).Redis, "embedded")
	if !strings.Contains(out.stderr, "no redis-server on this machine (Debian: apt-get install redis-server), so it uses the embedded one") {
		t.Errorf("not said in:\n%s", out.stderr)
	}
}
