package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server serves a handler at an address. Use [Listen], and Close it.
type Server struct {
	URL    string // with the port that it got
	http   *http.Server
	failed chan error
}

// Listen serves at an address like 127.0.0.1:8042; port 0 is a free one.
func Listen(address string, handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the backend: %w", err)
	}
	s := &Server{
		URL: "http://" + listener.Addr().String(),
		// Connections are kept while nobody calls: between two expiries nobody does.
		http:   &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxBody},
		failed: make(chan error, 1),
	}
	go func() { s.failed <- s.http.Serve(listener) }()
	return s, nil
}

// Close ends it: calls on their way are answered until ctx ends, and cut off then.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("end the backend: calls were cut off: %w", errors.Join(err, s.http.Close()))
	}
	if failed := <-s.failed; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve the backend: %w", failed))
	}
	return err
}
