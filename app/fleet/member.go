package fleet

import (
	"context"
	"fmt"
	"sync"
)

// Member is a process of the run as the coordinator knows it. Make one with [Admit].
type Member struct {
	*Peer
	Number int
	Hello
	// Elsewhere says that it is on another machine: its clock is not this one's.
	Elsewhere bool
	// How, if set, tells how the process ended; it may wait a moment for that.
	How func() string

	mu   sync.Mutex // guards lost
	lost error
}

// String names the process as it is told: "process 3 (pid 4711)".
func (m *Member) String() string {
	if m.Elsewhere {
		return fmt.Sprintf("process %d (pid %d on %s)", m.Number, m.PID, m.Host)
	}
	return fmt.Sprintf("process %d (pid %d)", m.Number, m.PID)
}

// Lost is why the process is not there any more; nil while it is.
func (m *Member) Lost() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// Lose names the process that an error is about, and remembers that it is lost: nothing is expected of it any more. An end of ctx
// is no fault of the process.
func (m *Member) Lose(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && m.How != nil {
		_ = m.Close()
		if how := m.How(); how != "" {
			err = fmt.Errorf("%w (%s)", err, how)
		}
	}
	err = fmt.Errorf("%v: %w", m, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost == nil {
		m.lost = err
	}
	_ = m.Close()
	return err
}
