// Package redistest starts real Redis servers for tests.
package redistest

import (
	"context"
	"net"
	"syscall"
	"testing"

	"cachelab/app/redisserver"
)

// Required is the variable that makes a missing redis-server a failure instead of a skipped test.
const Required = "CACHELAB_REQUIRE_REDIS"

// Server is a redis-server process of its own.
type Server struct {
	Port int

	t      testing.TB
	server *redisserver.Server
}

// Start starts a redis-server on a free port of 127.0.0.1, and stops it when the test ends. Without a
// redis-server on the machine the test is skipped, and says so.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	server, err := redisserver.New(context.Background(), args...)
	must(t, err)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Server{Port: server.Port, t: t, server: server}
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.server.Addr() }

// URL returns the server's URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Start starts the process again after Stop, empty, on the same port, and waits until it accepts.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.server.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// Stop kills the process.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.server.Stop(); err != nil {
		s.t.Error(err)
	}
}

// Pause makes the process stand still, as SIGSTOP does: it accepts and never answers, until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.server.Pid(), signal); err != nil {
		s.t.Fatal(err)
	}
}

// StartTLS starts a server that speaks TLS at the address that it returns, with this certificate, or one of the authority
// if there is none. It wants a certificate of each client that the authority signed, if the arguments do not say otherwise.
func StartTLS(t testing.TB, a *Authority, cert, key string, args ...string) (addr string) {
	t.Helper()
	if cert == "" {
		cert, key = a.Issue("127.0.0.1", "localhost")
	}
	port := FreePort(t)
	Start(t, append([]string{"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.File}, args...)...)
	return net.JoinHostPort("127.0.0.1", port)
}
