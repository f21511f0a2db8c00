//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
	"cachelab/app/modes"
	"cachelab/app/record"
)

// program builds the program.
func program(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "cachelab")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "cachelab/app").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

func TestAReaderThatLeavesEndsARunInOrder(t *testing.T) {
	t.Parallel()
	leaveEarly(t, 6)
}

// leaveEarly makes runs whose reader takes 60 lines and leaves: cachelab fixed | head -60.
func leaveEarly(t *testing.T, times int) {
	t.Helper()
	binary, server := program(t), redistest.Start(t)
	for range times {
		dir := t.TempDir()
		file, records := filepath.Join(dir, "run.json"), filepath.Join(dir, "records")
		c := exec.CommandContext(t.Context(), binary, "fixed", "--redis", server.URL(), "--ttl", "100ms", "--rounds", "50",
			"--telemetry", "off", "--json", file, "--records", records)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for n := 0; n < 60 && lines.Scan(); n++ {
		}
		_ = stdout.Close()
		_ = c.Wait() // the exit code says it
		equal(t, "exit code", c.ProcessState.ExitCode(), cli.ExitFailed)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; standard error: %s", err, &stderr)
		}
		r := decode(t, string(text))
		if r.Rounds < 1 || r.Rounds >= 50 || r.Requests != r.Rounds*50 || r.Lock.Released != r.Lock.Acquired {
			t.Errorf("%d rounds, %d requests, lock %+v", r.Rounds, r.Requests, r.Lock)
		}
		if !strings.Contains(r.Error, "nobody reads standard output any more") || !strings.Contains(stderr.String(), "broken pipe") {
			t.Errorf("error %q; standard error: %s", r.Error, &stderr)
		}
		recorded, err := record.Load(records, r.ID)
		if err != nil || len(recorded) != 1 || recorded[0].Run.BackendCalls != r.BackendCalls {
			t.Errorf("recorded: %+v, %v", recorded, err)
		}
		if reply := ask(t, server.Addr(), "EXISTS product:42:price:filling"); reply != ":0" {
			t.Fatalf("the lock was left: %s", reply)
		}
	}
}

// ask sends a command and returns the first line of its reply.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(reply)
}

// A terminal that goes away ends a run in order, but not one that was started with nohup.
func TestAHangUpEndsARunUnlessItIsIgnored(t *testing.T) {
	t.Parallel()
	binary := program(t)
	hangUps := make(chan os.Signal, 1) // tests that run under nohup would hand the ignored signal on
	signal.Notify(hangUps, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangUps) })
	for name, test := range map[string]struct {
		shell        string
		code, rounds int
	}{
		"terminal": {`exec "$@"`, cli.ExitFailed, 1},
		"nohup":    {`trap "" HUP; exec "$@"`, cli.ExitOK, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "run.json")
			c := exec.CommandContext(t.Context(), "sh", "-c", test.shell, "sh", binary, "fixed", "--redis", "embedded", "--telemetry", "off",
				"--records", "", "--rounds", "2", "--ttl", "500ms", "--backend-latency", "500ms", "--json", file)
			stdout, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			for lines, sent := bufio.NewScanner(stdout), false; lines.Scan(); { // to the end
				if !sent && strings.HasSuffix(lines.Text(), "BACKEND CALL") {
					sent = true
					if err := c.Process.Signal(syscall.SIGHUP); err != nil {
						t.Error(err)
					}
				}
			}
			_ = c.Wait() // the exit code says it
			equal(t, "exit code", c.ProcessState.ExitCode(), test.code)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "rounds", decode(t, string(text)).Rounds, test.rounds)
		})
	}
}

// full is a file that takes nothing.
func full(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no file that is always full on this system: %v", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	quick := []string{"--redis", "embedded", "--workers", "3", "--rounds", "2", "--ttl", "50ms", "--backend-latency", "5ms"}
	for _, args := range [][]string{
		{"--help"}, {"help", "fixed"},
		append([]string{"fixed"}, quick...), append([]string{"compare"}, quick...),
		append([]string{"broken", "--json", "-"}, quick...),
		{"live", "--redis", "embedded", "--for", "300ms", "--ttl", "50ms", "--backend-latency", "5ms", "--mode", "fixed"},
	} {
		stderr := capture(t)
		code := cli.Main(t.Context(), cli.Process{
			Args:      args,
			LookupEnv: func(name string) (string, bool) { return "", name == "CACHELAB_RECORDS" },
			Stdout:    full(t), Stderr: stderr, Modes: modes.All(),
		})
		if text := read(t, stderr); code != cli.ExitFailed || !strings.Contains(text, "no space left on device") {
			t.Errorf("%v: exit %d, and on standard error:\n%s", args, code, text)
		}
	}
}

// A full disk is no reason to end a run: its JSON is whole.
func TestARunGoesOnWhenItsOutputIsFull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	code := cli.Main(t.Context(), cli.Process{
		Args: []string{"fixed", "--redis", "embedded", "--workers", "3", "--rounds", "4", "--ttl", "300ms", "--backend-latency", "5ms",
			"--json", file, "--records", ""},
		LookupEnv: func(string) (string, bool) { return "", false },
		Stdout:    full(t), Stderr: capture(t), Modes: modes.All(),
	})
	equal(t, "exit code", code, cli.ExitFailed)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	checkFixed(t, decode(t, string(text)), 4)
}

func TestFilesThatCannotBeWrittenAreErrors(t *testing.T) {
	full(t)
	for _, flag := range []string{"--json", "--report"} {
		out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--workers", "3", "--rounds", "1", "--backend-latency", "5ms", flag, "/dev/full")
		if out.code != cli.ExitFailed || !regexp.MustCompile(`cachelab: write the (JSON|HTML report): .*no space left on device`).MatchString(out.stderr) {
			t.Errorf("%s: exit %d, %s", flag, out.code, out.stderr)
		}
	}
}
