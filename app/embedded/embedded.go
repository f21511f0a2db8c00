// Package embedded runs a Redis server inside the process (miniredis), for somebody who has only Go.
package embedded

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// tick is how often the server's clock is set forward: miniredis expires nothing by itself.
const tick = time.Millisecond

// Server is a running embedded Redis. It listens on a free port of 127.0.0.1.
type Server struct {
	redis   *miniredis.Miniredis
	stop    context.CancelFunc
	stopped chan struct{}

	mu       sync.Mutex
	commands map[string]int // guarded by mu; by lower-case name
}

// Start starts a server whose keys expire in real time. The caller must Close it.
func Start() (*Server, error) {
	redis := miniredis.NewMiniRedis()
	if err := redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{redis: redis, stop: stop, stopped: make(chan struct{}), commands: map[string]int{}}
	redis.Server().SetPreHook(s.count)
	go s.runClock(ctx)
	return s, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.redis.Addr() }

// Commands returns how often each command was executed, those inside scripts included, by lower-case name.
func (s *Server) Commands() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.commands)
}

// Close stops the server and its clock.
func (s *Server) Close() error {
	s.stop()
	<-s.stopped
	s.redis.Close()
	return nil
}

// count is called before each command. It returns false: the server shall execute the command.
func (s *Server) count(_ *server.Peer, command string, _ ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands[strings.ToLower(command)]++
	return false
}

// runClock sets the server's clock forward by the time that really passed.
func (s *Server) runClock(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now()
			s.redis.FastForward(now.Sub(last))
			last = now
		}
	}
}
