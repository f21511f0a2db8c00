// Package redistest starts real Redis servers for tests.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Required is the variable that makes a missing redis-server a failure instead of a skipped test.
const Required = "CACHELAB_REQUIRE_REDIS"

// Server is a redis-server process of its own.
type Server struct {
	Port int

	t    testing.TB
	args []string
	cmd  *exec.Cmd
}

// Start starts a redis-server on a free port of 127.0.0.1, and stops it when the test ends. Without a
// redis-server on the machine the test is skipped, and says so.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("%s is set, but there is no redis-server", Required)
		}
		t.Skip("no redis-server on this machine (Debian: apt-get install redis-server): the tests on a real Redis are skipped")
	}
	s := &Server{Port: FreePort(t), t: t, args: args}
	t.Cleanup(s.Stop)
	s.Start()
	return s
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// URL returns the server's URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Start starts the process again after Stop, empty, on the same port, and waits until it accepts.
func (s *Server) Start() {
	s.t.Helper()
	args := append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--dir", s.t.TempDir()}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan error, 1)
	go func() {
		var log strings.Builder
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- nil
			}
		}
		select {
		case ready <- fmt.Errorf("redis-server ended:\n%s", log.String()):
		default:
		}
	}()
	select {
	case err := <-ready:
		if err != nil {
			s.t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		s.t.Fatal("redis-server was not ready within 10 s")
	}
}

// Stop kills the process.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended already
	_ = s.cmd.Wait()
	s.cmd = nil
}

// FreePort returns a port of 127.0.0.1 that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
