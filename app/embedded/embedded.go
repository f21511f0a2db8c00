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

// Server is an embedded Redis. It listens on a free port of 127.0.0.1.
type Server struct {
	addr    string
	stop    context.CancelFunc // of the clock
	stopped chan struct{}

	clock sync.Mutex // held while the clock is set; guards last
	last  time.Time  // what it is set to

	mu          sync.Mutex // guards all below
	redis       *miniredis.Miniredis
	starts      int
	commands    map[string]int            // by lower-case name
	connections map[*server.Peer]struct{} // those that have sent something
}

// Start starts a server whose keys expire in real time. The caller must Close it.
func Start() (*Server, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{addr: "127.0.0.1:0", stop: stop, stopped: make(chan struct{}), last: time.Now()}
	if err := s.Start(ctx); err != nil {
		stop()
		return nil, err
	}
	go s.runClock(ctx)
	return s, nil
}

// Start starts the server again after Stop, at the same address: empty, and counting from 0.
func (s *Server) Start(context.Context) error {
	redis := miniredis.NewMiniRedis()
	if err := redis.StartAddr(s.addr); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis, s.addr = redis, redis.Addr()
	s.starts++
	s.commands, s.connections = map[string]int{}, map[*server.Peer]struct{}{}
	redis.Server().SetPreHook(s.count)
	return nil
}

// Stop cuts all connections and refuses new ones until Start. What was stored is gone.
func (s *Server) Stop() error {
	s.current().Close()
	return nil
}

func (s *Server) current() *miniredis.Miniredis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis
}

// Addr returns host:port.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Starts returns how often the server was started. Counts of before and after a start do not add up.
func (s *Server) Starts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts
}

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
	return s.Stop()
}

// count is called before each command. It returns false: the server shall execute the command. A SET starts a TTL, so
// the clock must be right by then: set forward afterwards, it would eat of it. In a script the server is locked; there
// the clock is that of the script's begin.
func (s *Server) count(peer *server.Peer, command string, _ ...string) bool {
	name := strings.ToLower(command)
	s.mu.Lock()
	s.commands[name]++
	connection := s.isConnection(peer)
	s.mu.Unlock()
	if connection && (name == "set" || name == "eval") {
		s.setClock()
	}
	return false
}

// isConnection tells a connection from a script that sends commands: a connection comes without a context, and is given one
// with its first command. The caller holds mu.
func (s *Server) isConnection(peer *server.Peer) bool {
	if peer.Ctx == nil {
		connections := s.connections
		connections[peer] = struct{}{}
		peer.OnDisconnect(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(connections, peer)
		})
	}
	_, known := s.connections[peer]
	return known
}

// runClock sets the server's clock forward by the time that really passed.
func (s *Server) runClock(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.setClock()
		}
	}
}

func (s *Server) setClock() {
	s.clock.Lock()
	defer s.clock.Unlock()
	now := time.Now()
	s.current().FastForward(now.Sub(s.last))
	s.last = now
}
