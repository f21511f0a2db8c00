package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/modes"
)

// asProgram makes the test's own binary the program, as main makes it, and so its child processes.
const asProgram = "LAB_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, cli.Process{Args: os.Args[1:], Environ: os.Environ(), LookupEnv: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr, Modes: modes.All()}))
}

const (
	key  = "product:42:price"
	lock = key + ":filling"
	// patience is far more than anything here takes, also on a busy machine.
	patience = time.Minute
)

// program is a run of the program as a process of its own.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// Write implements io.Writer.
func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts the program. What is left of it and of its children when the test ends is killed.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "CACHELAB_TELEMETRY=off", "CACHELAB_RECORDS=", "CACHELAB_QUIET=true")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

// wait returns the exit code.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("it did not end:\n%s", p.text())
	}
	return p.cmd.ProcessState.ExitCode()
}

// children are the pids of its processes.
func (p *program) children() (pids []int) {
	p.t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	if len(tasks) == 0 {
		p.t.Skip("this system does not tell a process's children")
	}
	var text []byte
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		text = append(append(text, ' '), more...)
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// gone reports whether a process is not there any more.
func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func client(t *testing.T, server *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// inRound waits until the first round is over and the fill lock is held again: the second is on its way.
func (p *program) inRound(c *redis.Client) {
	p.t.Helper()
	eventually(p.t, "the second round", func() bool {
		return strings.Contains(p.text(), "round 1/") && c.Exists(p.t.Context(), lock).Val() == 1
	})
}

func read(t *testing.T, file string) (run facts.Run) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}
