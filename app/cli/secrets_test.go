package cli_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
	"cachelab/telemetry/otlptest"
)

// Wherever a URL with a password lands, right or wrong, it is not repeated.
func TestNoOutputHoldsAPassword(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"fixed", "--redis", "redis://user:s3cret@127.0.0.1:1"},
		{"fixed", "--redis", "redis://user:s3cret"},
		{"fixed", "--redis", "redis://user:s3cret,localhost:7110"},
		{"fixed", "--redis", "redis://localhost:7110?password=s3cret"},
		{"fixed", "--redis", "redis://user:s3cret@host?password=s3cret"},
		{"fixed", "--redis", "redis:user:s3cret@localhost:7120"},
		{"fixed", "--redis=", "redis://user:s3cret@host"},
		{"fixed", "-redis=redis://user:s3cret@host"},
		{"fixed", "--=redis://user:s3cret@host"},
		{"fixed", "--rediss=redis://user:s3cret@host"},
		{"redis://user:s3cret@host"},
		{"help", "redis://user:s3cret@host"},
		{"drill", "redis://user:s3cret@host"},
		{"fixed", "--jaeger-url", "http://s3cret:s3cret@host/?key=s3cret"},
		{"live", "--grafana-url", "s3cret:s3cret@host"},
		{"verify", "--prometheus-url", "s3cret:s3cret@host"},
	} {
		out := run(t.Context(), t, nil, args...)
		if out.code == cli.ExitOK || strings.Contains(out.stdout+out.stderr, "s3cret") {
			t.Errorf("%q: exit %d, printed:\n%s%s", args, out.code, out.stdout, out.stderr)
		}
	}
}

// An HTTP client repeats its URL, with the user's name.
func TestVerifyDoesNotRepeatTheUserOfItsURLs(t *testing.T) {
	t.Parallel()
	receiver := otlptest.Start(t)
	records := t.TempDir()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	out := run(t.Context(), t, env, "fixed", "--workers", "2", "--rounds", "1", "--backend-latency", "10ms", "--redis", "embedded", "--records", records)
	equal(t, "exit code", out.code, cli.ExitOK)
	out = run(t.Context(), t, nil, "verify", "--records", records, "--prometheus-url", "http://s3cretuser:s3cret@127.0.0.1:1", "--patience", "0s")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if !strings.Contains(out.stderr, "127.0.0.1:1/api/v1/query: dial tcp") || strings.Contains(out.stderr, "s3cret") {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

// The client library reads such a text as localhost:6379.
func TestATargetWithoutSlashesIsRefused(t *testing.T) {
	t.Parallel()
	out := run(t.Context(), t, nil, "broken", "--redis", "redis:localhost:7120")
	equal(t, "exit code", out.code, cli.ExitUsage)
	if !strings.Contains(out.stderr, `--redis "***": want auto, embedded, or a URL like redis://`) {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

// Nor do the errors of the exporters.
func TestTelemetryDoesNotRepeatTheUserOfItsURLs(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://s3cretuser:s3cret@127.0.0.1:1/?key=s3cret", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
		out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "on")
		equal(t, "exit code", out.code, cli.ExitFailed)
		if !strings.Contains(out.stderr, "127.0.0.1:1") || strings.Contains(out.stdout+out.stderr, "s3cret") {
			t.Errorf("%s, printed:\n%s%s", protocol, out.stdout, out.stderr)
		}
	}
}

// A password is in nothing that a run leaves behind, wherever it was given and however the run ends: neither in what is printed,
// nor in a file, nor in what is exported, nor in the arguments of a process that it starts.
func TestAPasswordIsInNothingThatARunLeavesBehind(t *testing.T) {
	t.Parallel()
	const password = "s3cret/@?#%41" // of which "s3cret" stays in any form
	program := filepath.Join(t.TempDir(), "cachelab")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "cachelab/app").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, test := range map[string]struct {
		args  string
		code  int
		wrong bool                               // the password
		after func(*exec.Cmd, *redistest.Server) // the first round
		child bool                               // the run starts a process
	}{
		"fixed":              {args: "fixed"},
		"woken":              {args: "woken"},
		"a dead winner":      {args: "drill dead-winner", child: true},
		"processes":          {args: "woken --processes 2", child: true},
		"wrong password":     {args: "fixed", wrong: true, code: cli.ExitFailed},
		"an outage":          {args: "fixed", after: func(_ *exec.Cmd, s *redistest.Server) { s.Stop() }, code: cli.ExitFailed},
		"an interrupted run": {args: "fixed", after: func(p *exec.Cmd, _ *redistest.Server) { _ = p.Process.Signal(os.Interrupt) }, code: cli.ExitFailed},
	} {
		for _, form := range []string{"URL", "file"} {
			t.Run(name+", password in the "+form, func(t *testing.T) {
				t.Parallel()
				receiver, folder := otlptest.Start(t), t.TempDir()
				server := redistest.Start(t, "--requirepass", password)
				given := password
				if test.wrong {
					given = "s3cret of yesterday"
				}
				inURL := url.URL{Scheme: "redis", User: url.UserPassword("default", given), Host: server.Addr()}
				way := []string{"CACHELAB_REDIS=" + inURL.String()}
				if form == "file" {
					way = []string{"CACHELAB_REDIS=redis://default@" + server.Addr(), "CACHELAB_REDIS_PASSWORD_FILE=" + file(t, given+"\n")}
				}
				args := append(strings.Fields(test.args), "--quiet=false", "--workers", "10", "--ttl", "300ms", "--json", filepath.Join(folder, "run.json"),
					"--results", filepath.Join(folder, "run.jsonl"), "--report", filepath.Join(folder, "run.html"), "--records", filepath.Join(folder, "records"))
				var stdout, stderr watched
				p := exec.CommandContext(t.Context(), program, args...)
				p.Env, p.Stdout, p.Stderr = append(os.Environ(), append(way, "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)...), &stdout, &stderr
				if test.after != nil {
					stdout.text, stdout.do = "round 1/", func() { test.after(p, server) }
				}
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				children := childrenOf(p.Process.Pid)
				err := p.Wait()
				equal(t, "exit code", p.ProcessState.ExitCode(), test.code)
				if t.Failed() {
					t.Logf("%v:\n%s%s", err, stdout.kept.String(), stderr.kept.String())
				}
				traces := map[string]string{"standard output": stdout.kept.String(), "standard error": stderr.kept.String(), "arguments of children": children()}
				equal(t, "is there a child", traces["arguments of children"] != "", test.child && runtime.GOOS == "linux")
				for _, s := range receiver.Spans() {
					traces["spans"] += s.String()
				}
				for _, metrics := range slices.Concat(receiver.Pushes()...) {
					traces["metrics"] += metrics.String()
				}
				err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
					if err == nil && entry.Type().IsRegular() {
						text, readErr := os.ReadFile(name)
						traces[entry.Name()], err = string(text), readErr
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if n := len(traces); n < 3 || !test.wrong && n < 9 { // records: one, and one file beside
					t.Errorf("there are only %d traces", n)
				}
				for where, text := range traces {
					if strings.Contains(text, "s3cret") {
						t.Errorf("the password is in the %s: %s", where, text)
					}
				}
			})
		}
	}
}

// watched keeps what is written, and calls do once, when text was written.
type watched struct {
	kept strings.Builder
	text string
	do   func()
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.kept.Write(b)
	if w.do != nil && strings.Contains(w.kept.String(), w.text) {
		w.once.Do(w.do)
	}
	return n, err
}

// childrenOf collects the arguments of the processes that a process starts, until the function that it returns is called.
func childrenOf(parent int) (arguments func() string) {
	ended, all := make(chan struct{}), make(chan string)
	go func() {
		var found strings.Builder
		for {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
			for _, thread := range threads {
				pids, _ := os.ReadFile(thread) // the thread may have ended
				for pid := range strings.FieldsSeq(string(pids)) {
					line, _ := os.ReadFile("/proc/" + pid + "/cmdline") // so may the child
					found.Write(line)
				}
			}
			select {
			case <-ended:
				all <- found.String()
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() string { close(ended); return <-all }
}
