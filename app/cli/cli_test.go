package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
)

// output is what a run of the program left behind.
type output struct {
	code           int
	stdout, stderr string
}

// run runs the program in this process, as main does, with the environment env.
func run(ctx context.Context, t *testing.T, env map[string]string, args ...string) output {
	t.Helper()
	return runUntil(ctx, t, env, nil, nil, args...)
}

// runUntil is run, and calls do once the event is printed on standard error.
func runUntil(ctx context.Context, t *testing.T, env map[string]string, event *regexp.Regexp, do func(), args ...string) output {
	t.Helper()
	return runThis(ctx, t, modes.All(), env, event, do, args...)
}

// runWith is run, with other modes.
func runWith(ctx context.Context, t *testing.T, table modes.Table, env map[string]string, args ...string) output {
	t.Helper()
	return runThis(ctx, t, table, env, nil, nil, args...)
}

func runThis(ctx context.Context, t *testing.T, table modes.Table, env map[string]string, event *regexp.Regexp, do func(), args ...string) output {
	t.Helper()
	stdout, stderr := capture(t), capture(t)
	if event != nil {
		ended := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			for !event.MatchString(read(t, stderr)) {
				select {
				case <-ended:
					t.Errorf("%v was not printed", event)
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
			do()
		})
		defer watch.Wait()
		defer close(ended)
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	if _, ok := env["CACHELAB_RECORDS"]; !ok {
		env["CACHELAB_RECORDS"] = ""
	}
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	code := cli.Main(ctx, cli.Process{
		Args:      args,
		Environ:   environ,
		LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		Stdout:    stdout,
		Stderr:    stderr,
		Modes:     table,
	})
	return output{code, read(t, stdout), read(t, stderr)}
}

func capture(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func read(t *testing.T, file *os.File) string {
	t.Helper()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, text string) facts.Run {
	t.Helper()
	var r facts.Run
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return r
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// onBoth runs a test with --redis of a real Redis and of the embedded one, at the same time.
func onBoth(t *testing.T, test func(t *testing.T, redis string)) {
	t.Run("redis-server", func(t *testing.T) { t.Parallel(); test(t, redistest.Start(t).URL()) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, "embedded") })
}

func TestBrokenShowsTheHerd(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		out := run(t.Context(), t, nil, "broken", "--redis", redis, "--json", "-", "--ttl", "1500ms")
		equal(t, "exit code", out.code, cli.ExitOK)
		r := decode(t, out.stdout)
		equal(t, "requests", r.Requests, 250)
		equal(t, "backend calls", r.BackendCalls, 250)
		equal(t, "expiries", r.Expiries, 5)
		equal(t, "calls per expiry", r.CallsPerExpiry, 50)
		equal(t, "peak in flight", r.BackendPeak, 50)
		equal(t, "redundant", r.Redundant, 245)
		equal(t, "repeated", r.Repeated, 0)
		equal(t, "verdict ok", r.Verdict.OK, true)
		equal(t, "invariant", r.Verdict.Invariant, false)
		equal(t, "verdict", r.Verdict.Text, "250 backend calls / 5 expiries = 50.0: a thundering herd")
		equal(t, "Redis counted", r.RedisCommands, facts.RedisCommands{
			Commands: redisCommands(r), Standing: "exact"})
		checkReadme(t, "broken", out.stderr)
	})
}

func TestFixedCallsOncePerExpiry(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		out := run(t.Context(), t, nil, "fixed", "--redis", redis, "--json", "-", "--ttl", "500ms")
		equal(t, "exit code", out.code, cli.ExitOK)
		r := decode(t, out.stdout)
		checkFixed(t, r, 5)
		equal(t, "requests", r.Requests, 250)
		checkReadme(t, "fixed", out.stderr)
	})
}

// checkFixed checks what holds in every run with the fill lock in which nothing was made to fail.
func checkFixed(t *testing.T, r facts.Run, cycles int) {
	t.Helper()
	equal(t, "backend calls", r.BackendCalls, cycles)
	equal(t, "expiries", r.Expiries, cycles)
	equal(t, "redundant", r.Redundant, 0)
	equal(t, "repeated", r.Repeated, 0)
	equal(t, "lost", r.Lock.Lost, 0)
	equal(t, "store errors", r.StoreErrors, 0)
	equal(t, "errors", r.Outcomes["error"], 0)
	equal(t, "released", r.Lock.Released, r.Lock.Acquired)
	equal(t, "acquired - rechecked", r.Lock.Acquired-r.Lock.Rechecked, r.BackendCalls)
	equal(t, "filled", r.Outcomes["filled"], cycles)
	equal(t, "waited + hit", r.Outcomes["waited"]+r.Outcomes["hit"], r.Requests-cycles)
	equal(t, "verdict ok", r.Verdict.OK, true)
	equal(t, "invariant", r.Verdict.Invariant, true)
	equal(t, "Redis counted", r.RedisCommands, facts.RedisCommands{Commands: redisCommands(r), Standing: "exact"})
}

func TestLoadIsALargerQuietFixed(t *testing.T) {
	out := run(t.Context(), t, nil, "load", "--redis", "embedded", "--json", "-", "--ttl", "300ms", "--rounds", "2")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	equal(t, "workers", r.Workers, 500)
	checkFixed(t, r, 2)
	if strings.Contains(out.stderr, "GET MISS") {
		t.Error("load prints steps")
	}
}

func TestCompareRunsBothAndPrintsTheRatio(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "runs.json")
	out := run(t.Context(), t, nil, "compare", "--redis", "embedded", "--json", file, "--quiet", "--ttl", "800ms",
		"--workers", "20", "--rounds", "2", "--backend-capacity", "0")
	equal(t, "exit code", out.code, cli.ExitOK)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var runs []facts.Run
	if err := json.Unmarshal(text, &runs); err != nil {
		t.Fatal(err)
	}
	equal(t, "runs", len(runs), 2)
	equal(t, "broken's calls", runs[0].BackendCalls, 40)
	equal(t, "fixed's calls", runs[1].BackendCalls, 2)
	if !regexp.MustCompile(`backend calls +│ +40 │ +2 │ 20.0 x`).MatchString(out.stdout) {
		t.Errorf("no row with the ratio of backend calls in:\n%s", out.stdout)
	}
}

func TestStepsArePrintedAsTheyHappenWithoutColours(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--workers", "12", "--rounds", "1", "--backend-latency", "100ms")
	for _, want := range []string{
		`r1 w\d\d GET MISS\n`, `r1 w\d\d SET NX PX acquired\n`, `r1 w\d\d GET MISS on the re-check\n`,
		`r1 w\d\d BACKEND CALL\n`, `r1 w\d\d WAIT\n`, `r1 w\d\d SET PX 3000\n`, `r1 w\d\d DEL released\n`,
		`r1 w\d\d GET HIT after \d+ polls?\n`, `round 1/1: 12 workers, 1 backend call, 1 expiry, `,
		`  backend calls    1\n`, `verdict: ok, 1 backend call / 1 expiry = 1\.0`,
	} {
		if !regexp.MustCompile(want).MatchString(out.stdout) {
			t.Errorf("no line %s in:\n%s", want, out.stdout)
		}
	}
	if strings.Contains(out.stdout, "\x1b") {
		t.Error("escape codes although the output is no terminal")
	}
	equal(t, "stderr", out.stderr, "")
}

func TestAllFaultsAreListedAtOnceBeforeAnythingStarts(t *testing.T) {
	env := map[string]string{"CACHELAB_ROUNDS": "none", "CACHELAB_TTL": "5s"}
	out := run(t.Context(), t, env, "fixed", "--workers", "0", "--ttl", "3sec", "--lock-ttl", "-1s", "--backend-jitter", "1.5",
		"--backend-capacity", "-1", "--backend-fail", "5-2", "--seed", "x", "--redis", "http://:s3cret@x", "--quiet=maybe",
		"--backend-latency", "5", "--wait-timeout", "0s", "--json", "/nowhere/run.json")
	equal(t, "exit code", out.code, cli.ExitUsage)
	equal(t, "stdout", out.stdout, "")
	for _, want := range []string{
		`--workers "0": want a whole number from 1 to 100000`,
		`CACHELAB_ROUNDS "none": want a whole number from 1 to 1000000`,
		`--ttl "3sec": want a duration with its unit, like 250ms or 3s, of at least 1ms`,
		`--lock-ttl "-1s": want a duration`, `--backend-jitter "1.5": want a fraction from 0 to 1`,
		`--backend-capacity "-1": want a whole number from 0`, `--backend-fail "5-2": want a call number`,
		`--seed "x": want a whole number`, `--redis "http://***@x": want auto, embedded, or a URL`,
		`--quiet "maybe": want true or false`, `--backend-latency "5": want a duration`,
		`--wait-timeout "0s": want a duration`, `--json "/nowhere/run.json": open /nowhere/run.json: no such file`,
	} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("not said: %s\nbut:\n%s", want, out.stderr)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"fixt"}, {"fixed", "now"}, {"fixed", "--worker", "5"}, {"help", "fixt"}, {"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		out := run(t.Context(), t, nil, args...)
		if out.code != cli.ExitUsage || strings.Count(out.stderr, "\n") != 2 {
			t.Errorf("%q: exit %d, %q", args, out.code, out.stderr)
		}
	}
}

func TestVariablesAreReadAndFlagsWin(t *testing.T) {
	env := map[string]string{"CACHELAB_WORKERS": "3", "CACHELAB_ROUNDS": "1", "CACHELAB_REDIS": "embedded",
		"CACHELAB_BACKEND_LATENCY": "10ms", "CACHELAB_JSON": "-"}
	r := decode(t, run(t.Context(), t, env, "broken", "--workers", "4").stdout)
	equal(t, "workers", r.Workers, 4)
	equal(t, "rounds", r.Rounds, 1)
}

func TestRulesThatAreBrokenAreNamed(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--workers", "1", "--rounds", "1",
		"--backend-latency", "50ms", "--lock-ttl", "54ms", "--wait-timeout", "40ms") // the longest call takes 55 ms
	for _, want := range []string{"warning: the lock TTL (54ms) is not longer than a backend call (up to 55ms): the fill lock's TTL must be longer than the fill",
		"warning: the wait timeout (40ms) is not longer than the lock TTL (54ms)"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("not said: %s", want)
		}
	}
}

func TestAVerdictThatIsNotOkExits3(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--workers", "5", "--rounds", "1", "--backend-fail", "all",
		"--backend-latency", "10ms")
	equal(t, "exit code", out.code, cli.ExitVerdict)
	if !strings.Contains(out.stdout, "verdict: not ok, 5 backend calls / 0 expiries, and 5 of 5 requests failed") {
		t.Errorf("verdict in:\n%s", out.stdout)
	}
}

func TestKeysOfAnyBytesWork(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		for _, key := range []string{" ", "\x00\r\n\xff", "a b\"c"} {
			out := run(t.Context(), t, nil, "fixed", "--redis", redis, "--key", key, "--workers", "3", "--rounds", "1",
				"--backend-latency", "10ms", "--json", "-")
			equal(t, "exit code", out.code, cli.ExitOK)
			checkFixed(t, decode(t, out.stdout), 1)
		}
	})
}

func TestAnInterruptedRunReleasesTheLockAndTellsWhatThereIs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var interrupted time.Time
	interrupt := func() { interrupted = time.Now(); cancel() }
	out := runUntil(ctx, t, nil, regexp.MustCompile(`r2 w\d+ BACKEND CALL`), interrupt, "fixed", "--redis", server.URL(), "--rounds", "5",
		"--ttl", "300ms", "--backend-latency", "2s", "--json", "-")
	if took := time.Since(interrupted); took > 1500*time.Millisecond {
		t.Errorf("took %v after the interrupt", took)
	}
	equal(t, "exit code", out.code, cli.ExitFailed)
	r := decode(t, out.stdout)
	if r.Verdict.OK || r.Error == "" || !strings.Contains(r.Verdict.Text, "of 5 rounds") {
		t.Errorf("verdict %+v, error %q", r.Verdict, r.Error)
	}
	for _, want := range []string{"summary of rounds-", ", fixed\n", "ended early: ", "context canceled"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("no %q in:\n%s", want, out.stderr)
		}
	}
	equal(t, "rounds", r.Rounds, 2)
	equal(t, "backend calls", r.BackendCalls, 2)
	equal(t, "backend errors", r.BackendErrors, 1)
	equal(t, "released", r.Lock.Released, r.Lock.Acquired)
	again := run(t.Context(), t, nil, "fixed", "--redis", server.URL(), "--rounds", "1", "--backend-latency", "10ms", "--json", "-")
	if strings.Contains(again.stderr, "the fill lock is held") {
		t.Error("the interrupted run left its lock behind")
	}
	checkFixed(t, decode(t, again.stdout), 1)
}

func TestAHeldLockIsWaitedForAndNeverDeleted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	send(t, server.Addr(), "SET product:42:price:filling theirs PX 700")
	started := time.Now()
	out := run(t.Context(), t, nil, "fixed", "--redis", server.URL(), "--workers", "2", "--rounds", "1", "--backend-latency", "10ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	if took := time.Since(started); took < 690*time.Millisecond {
		t.Errorf("started after %v, while the lock was held for 700 ms", took)
	}
	if !strings.Contains(out.stdout, `the fill lock is held by "theirs": waiting up to`) {
		t.Errorf("not said whose lock it is:\n%s", out.stdout)
	}
	send(t, server.Addr(), "SET product:42:price:filling theirs PX 10000")
	started = time.Now()
	release := time.AfterFunc(300*time.Millisecond, func() {
		if err := exchange(server.Addr(), "SET product:42:price:filling theirs PX 1"); err != nil { // as good as a DEL
			t.Error(err)
		}
	})
	defer release.Stop()
	out = run(t.Context(), t, nil, "fixed", "--redis", server.URL(), "--workers", "2", "--rounds", "1", "--backend-latency", "10ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	if took := time.Since(started); took < 290*time.Millisecond || took > 5*time.Second {
		t.Errorf("started after %v, while the lock was held for 300 ms", took)
	}
	send(t, server.Addr(), "SET product:42:price:filling theirs")
	out = run(t.Context(), t, nil, "fixed", "--redis", server.URL())
	equal(t, "exit code", out.code, cli.ExitFailed)
	if !strings.Contains(out.stderr, `holds "theirs" and never expires`) {
		t.Errorf("got %q", out.stderr)
	}
}

func send(t *testing.T, addr, command string) {
	t.Helper()
	if err := exchange(addr, command); err != nil {
		t.Fatal(err)
	}
}

// exchange sends a command that is answered by +OK.
func exchange(addr, command string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, command+"\r\n"); err != nil {
		return err
	}
	reply := make([]byte, 1)
	if _, err := conn.Read(reply); err != nil || reply[0] != '+' {
		return fmt.Errorf("%s: %q, %v", command, reply, err)
	}
	return nil
}

func TestARedisThatDiesEndsTheRunSoonWithItsErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	started := time.Now()
	// When the last of them waits, all have missed.
	out := runUntil(t.Context(), t, nil, regexp.MustCompile(`(?s)(r1 w\d+ (WAIT|BACKEND CALL).*){50}`), server.Stop, "fixed", "--redis", server.URL(),
		"--backend-latency", "2s", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if took := time.Since(started); took > 12*time.Second {
		t.Errorf("took %v", took)
	}
	r := decode(t, out.stdout)
	equal(t, "rounds", r.Rounds, 1)
	equal(t, "backend calls", r.BackendCalls, 1) // nobody calls without the lock
	equal(t, "errors", r.Outcomes["error"], 49)
	equal(t, "filled", r.Outcomes["filled"], 1) // the winner has its value, although it could not store it
	if r.StoreErrors < 49 || !strings.Contains(r.Error, "stayed away for 5s") {
		t.Errorf("%d store errors, error %q", r.StoreErrors, r.Error)
	}
	equal(t, "Redis counted", r.RedisCommands.Standing, redisstore.NotAvailable)
}

func TestARedisThatIsNotThereIsAnErrorWithinSeconds(t *testing.T) {
	t.Parallel()
	started := time.Now()
	out := run(t.Context(), t, nil, "fixed", "--redis", "redis://:s3cret@127.0.0.1:1", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitFailed)
	equal(t, "stdout", out.stdout, "")
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if strings.Count(out.stderr, "cachelab: tried PING at redis://127.0.0.1:1: ") != 1 || strings.Contains(out.stderr, "s3cret") {
		t.Errorf("got %q", out.stderr)
	}
}

func TestAPasswordIsNeverShown(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "s3cret")
	url := "redis://:s3cret@" + server.Addr()
	out := run(t.Context(), t, map[string]string{"CACHELAB_REDIS": url}, "fixed", "--workers", "2", "--rounds", "1",
		"--backend-latency", "10ms", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "redis", decode(t, out.stdout).Redis, server.URL())
	if strings.Contains(out.stdout+out.stderr, "s3cret") {
		t.Errorf("the password is in:\n%s%s", out.stdout, out.stderr)
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"fixed", "--help"}} {
		out := run(t.Context(), t, nil, args...)
		equal(t, "exit code", out.code, cli.ExitOK)
		if !strings.Contains(out.stdout, "SET") || !strings.Contains(out.stdout, "miss") {
			t.Errorf("%q: %s", args, out.stdout)
		}
	}
}

// redisCommands is what Redis must have counted, from the ledger and the store's table.
func redisCommands(r facts.Run) redisstore.Commands {
	return redisstore.CommandGet.Adds(r.Gets.Hit+r.Gets.Miss, 0, 0).
		Plus(redisstore.CommandLock.Adds(r.Lock.Acquired+r.Lock.Held, 0, 0)).
		Plus(redisstore.CommandSet.Adds(r.BackendCalls-r.BackendErrors, 0, 0)).
		Plus(redisstore.CommandUnlock.Adds(r.Lock.Acquired, 0, r.Lock.Released))
}

// checkReadme compares the summary of a default run with the one in the program's README: the lines that do not vary. The
// verdict is in the first README, too.
func checkReadme(t *testing.T, mode, printed string) {
	t.Helper()
	for _, name := range []string{"  requests ", "  backend calls ", "  expiries ", "  calls per expiry ", "verdict: "} {
		line := ""
		for l := range strings.Lines(printed) {
			if strings.HasPrefix(l, name) {
				line = l
			}
		}
		if line == "" || !strings.Contains(document(t, appReadme), "\n"+line) {
			t.Errorf("%s prints %q, which is not in %s", mode, line, appReadme)
		}
		if name == "verdict: " && !strings.Contains(document(t, firstReadme), "\n"+line) {
			t.Errorf("%s prints %q, which is not in %s", mode, line, firstReadme)
		}
	}
}
