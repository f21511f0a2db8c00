package lab

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"cachelab/app/backend"
	"cachelab/app/observe"
)

// sharedBackend is the backend of a run whose workers are in other processes here: this one serves it to them, and so knows
// whose calls were redundant, and when each was answered. Its spans are the sessions'.
type sharedBackend struct {
	*backend.Runs
	server *backend.Server

	mu       sync.Mutex // guards all below
	sessions map[string]*session
}

// shareBackend serves the session's backend, at the lab's address for all its sessions.
func (l *Lab) shareBackend(s *session) (*backend.Service, error) {
	if l.shared == nil {
		shared := &sharedBackend{sessions: map[string]*session{}}
		shared.Runs = backend.NewRuns(l.config.Backend, shared.probe)
		var err error
		shared.server, err = backend.Listen("127.0.0.1:0", backend.NewHandler(shared.Runs, backend.HandlerConfig{Version: l.config.Version, Trace: shared.traced}))
		if err != nil {
			return nil, fmt.Errorf("for the other processes: %w", err)
		}
		l.shared = shared
		if l.config.Joiners > 0 {
			l.terminal.Warn("without --backend each joiner has a backend inside: which calls were redundant or repeated, and the peak, is known for each alone")
		}
	}
	l.shared.mu.Lock()
	l.shared.sessions[s.account()] = s
	l.shared.mu.Unlock()
	return l.shared.Open(s.account(), l.config.TTL)
}

func (b *sharedBackend) session(account string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[account]
}

// probe is that of a session.
func (b *sharedBackend) probe(account string) backend.Probe {
	s := b.session(account)
	if s == nil {
		return nil // somebody else found the address
	}
	return observe.Service(s.telemetry, s.id, true)
}

// traced puts each call into the trace of its caller, with the telemetry of its session.
func (b *sharedBackend) traced(calls http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := b.session(r.URL.Query().Get("run")); s != nil {
			s.telemetry.Served(calls).ServeHTTP(w, r)
			return
		}
		calls.ServeHTTP(w, r)
	})
}

// leave forgets a session that is closed.
func (b *sharedBackend) leave(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s.account())
}

// close ends it: nobody is there any more who waits for an answer.
func (b *sharedBackend) close() error {
	done, cancel := context.WithTimeout(context.Background(), lastCalls)
	defer cancel()
	return b.server.Close(done)
}
