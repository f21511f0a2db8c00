// Package redisserver runs a redis-server process of one's own, or a valkey-server where there is none, which may be stopped and started again.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNone says that there is no server on the machine.
var ErrNone = errors.New("neither redis-server nor valkey-server on this machine (Debian: apt-get install redis-server)")

// readyTimeout bounds the start of the process.
const readyTimeout = 10 * time.Second

// supervise runs a command beside a shell that waits for the end of its standard input, which is this process's to hold:
// however this process ends, SIGKILL included, the command is killed. Its pid is the first line.
const supervise = `sh -c 'echo $$; exec "$@"' sh "$@" </dev/null & exec >/dev/null; read -r held; kill -KILL $!; wait`

// Server is a redis-server on a free port of 127.0.0.1, without persistence, which ends with this process. Make one with
// [New], and Close it.
type Server struct {
	Port    int
	program string
	args    []string
	ready   string    // is in the line of its log that says that it accepts
	cmd     *exec.Cmd // the shell; nil when stopped
	held    io.Closer // its standard input
	pid     int       // the redis-server's
}

// New starts a redis-server with further arguments. The error is [ErrNone] if there is none to start.
func New(ctx context.Context, args ...string) (*Server, error) {
	// No folder is needed: nothing is written, and nothing is read from one that others may write to.
	args = append([]string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", "/", "--dbfilename", "no-cachelab.rdb",
		"--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb"}, args...)
	return launch(ctx, "Ready to accept connections", args...)
}

func launch(ctx context.Context, ready string, args ...string) (*Server, error) {
	program, err := program()
	if err != nil {
		return nil, err
	}
	port, err := FreePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a port for a redis-server: %w", err)
	}
	s := &Server{Port: port, program: program, args: args, ready: ready}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Pid returns the process's id, while it runs.
func (s *Server) Pid() int { return s.pid }

// Start starts the process again after Stop, empty, on the same port, and returns when it accepts.
func (s *Server) Start(ctx context.Context) error {
	args := append(append([]string{"-c", supervise, "sh", s.program}, s.args...), "--port", strconv.Itoa(s.Port))
	cmd := exec.Command("sh", args...) // it outlives ctx: Close ends it
	inOwnGroup(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start a redis-server: %w", err)
	}
	held, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a redis-server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a redis-server: %w", err)
	}
	s.cmd, s.held = cmd, held
	lines := bufio.NewScanner(stdout)
	if lines.Scan() {
		s.pid, err = strconv.Atoi(lines.Text())
	}
	if err != nil || s.pid == 0 {
		return errors.Join(fmt.Errorf("start a redis-server: its pid is %q", lines.Text()), s.Stop())
	}
	ready := make(chan error, 1)
	go func() {
		var log strings.Builder
		accepts := false
		for lines.Scan() { // to the end: a full pipe would stop the server
			if accepts {
				continue
			}
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), s.ready) {
				accepts = true
				ready <- nil
			}
		}
		if !accepts {
			ready <- fmt.Errorf("redis-server ended:\n%s", log.String())
		}
	}()
	select {
	case err = <-ready:
	case <-time.After(readyTimeout):
		err = fmt.Errorf("redis-server was not ready within %v", readyTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// Stop kills the process. What it stored is gone.
func (s *Server) Stop() error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd, s.pid = nil, 0
	if err := s.held.Close(); err != nil {
		return fmt.Errorf("stop the redis-server: %w", err)
	}
	_ = cmd.Wait() // the shell has killed it, or it had ended already
	return nil
}

// Close stops the process.
func (s *Server) Close() error { return s.Stop() }

// program is the server that there is, by its path.
func program() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// FreePort returns a port of 127.0.0.1 that nobody uses. It is below those that systems take for connections that go out: one
// of those could be taken by whoever connects anywhere, before the server is there.
func FreePort(ctx context.Context) (port int, err error) {
	const from, to, tries = 10_240, 32_768, 100
	var config net.ListenConfig
	for range tries {
		port = from + rand.IntN(to-from)
		listener, failed := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err = failed; err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}
