package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Server serves a handler at an address. Use [Listen], and Close it.
type Server struct {
	URL  string // with the port that it got, and this machine's name if it serves on all its addresses
	http *http.Server

	ended chan struct{}
	err   error // why; once ended is closed
}

// Listen serves at an address like 127.0.0.1:8042; port 0 is a free one.
func Listen(address string, handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the backend: %w", err)
	}
	s := &Server{
		URL: urlOf(listener.Addr().(*net.TCPAddr)),
		// Connections are kept while nobody calls: between two expiries nobody does.
		http:  &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxBody},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		s.err = s.http.Serve(listener)
	}()
	return s, nil
}

func urlOf(addr *net.TCPAddr) string {
	if addr.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return fmt.Sprintf("http://%s:%d", name, addr.Port)
		}
	}
	return "http://" + addr.String()
}

// Wait waits until ctx ends, which is no error, or it cannot serve any more.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ended:
		return s.failure()
	}
}

func (s *Server) failure() error {
	if errors.Is(s.err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the backend: %w", s.err)
}

// Close ends it: calls on their way are answered until ctx ends, and cut off then.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("end the backend: calls were cut off: %w", errors.Join(err, s.http.Close()))
	}
	<-s.ended
	return errors.Join(err, s.failure())
}
