// Package redisserver runs a redis-server process of one's own, which may be stopped and started again.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNone says that there is no redis-server on the machine.
var ErrNone = errors.New("no redis-server on this machine (Debian: apt-get install redis-server)")

// readyTimeout bounds the start of the process.
const readyTimeout = 10 * time.Second

// Server is a redis-server on a free port of 127.0.0.1, without persistence. Make one with [New], and Close it.
type Server struct {
	Port int
	args []string
	dir  string
	cmd  *exec.Cmd // nil when stopped
}

// New starts a redis-server with further arguments. The error is [ErrNone] if there is none to start.
func New(ctx context.Context, args ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, ErrNone
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a port for a redis-server: %w", err)
	}
	dir, err := os.MkdirTemp("", "cachelab-redis-")
	if err != nil {
		return nil, fmt.Errorf("start a redis-server: %w", err)
	}
	s := &Server{Port: port, args: args, dir: dir}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Start starts the process again after Stop, empty, on the same port, and returns when it accepts.
func (s *Server) Start(ctx context.Context) error {
	args := append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--dir", s.dir}, s.args...)
	cmd := exec.Command("redis-server", args...) // it outlives ctx: Close ends it
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start a redis-server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a redis-server: %w", err)
	}
	s.cmd = cmd
	ready := make(chan error, 1)
	go func() {
		var log strings.Builder
		accepts := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); { // to the end: a full pipe would stop the server
			if accepts {
				continue
			}
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "Ready to accept connections") {
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
	s.cmd = nil
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the redis-server: %w", err)
	}
	_ = cmd.Wait() // it was killed, or had ended already
	return nil
}

// Close stops the process and removes its directory.
func (s *Server) Close() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
