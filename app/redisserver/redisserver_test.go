package redisserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cachelab/app/redisserver"
)

// holder is the variable that makes the test's own binary a program that starts a redis-server and waits.
const holder = "CACHELAB_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holder) == "" {
		os.Exit(m.Run())
	}
	server, err := redisserver.New(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // without Close: nothing is left to run then
}

func TestAServerEndsWithItsParentHoweverThatEnds(t *testing.T) {
	one(t)
	for name, end := range map[string]func(cmd *exec.Cmd, stdin io.Closer) error{
		"SIGKILL":            func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() },
		"exit without Close": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), holder+"=1", "TMPDIR="+temp)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			lines.Scan()
			addr := lines.Text()
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatalf("%v; the program said %q", err, addr)
			}
			if err := end(cmd, stdin); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the redis-server at %s is still there: %v", addr, err)
			}
			if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestAServerThatEndsByItselfIsAnErrorSoon(t *testing.T) {
	started := time.Now()
	_, err := redisserver.New(t.Context(), "--no-such-option", "1")
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip(err)
	}
	if err == nil || time.Since(started) > 8*time.Second {
		t.Errorf("got %v after %v", err, time.Since(started))
	}
}

// one starts a server, and stops it when the test ends. Without any on the machine the test is skipped.
func one(t *testing.T) *redisserver.Server {
	t.Helper()
	server, err := redisserver.New(t.Context())
	switch {
	case errors.Is(err, redisserver.ErrNone):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// Where there is no redis-server, a valkey-server will do; with both it is the redis-server.
func TestAValkeyServerWillDo(t *testing.T) {
	one(t) // else the test is skipped
	real, err := exec.LookPath("redis-server")
	if err != nil {
		real, err = exec.LookPath("valkey-server")
	}
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"sh": shell, "valkey-server": real} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
	one(t)
	if err := os.Symlink("/bin/false", filepath.Join(folder, "redis-server")); err != nil {
		t.Fatal(err)
	}
	if _, err := redisserver.New(t.Context()); err == nil || errors.Is(err, redisserver.ErrNone) {
		t.Errorf("with both, valkey-server was started: %v", err)
	}
}
