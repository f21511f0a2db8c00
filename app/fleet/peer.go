package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Each end says twice a second that it is alive. The other counts for how many beats it has listened and heard nothing, and reads
// no clock: so a coordinator that was itself suspended does not take the others for dead.
const (
	beat = 500 * time.Millisecond
	// CoordinatorPatience is for how many beats a process may be silent: 3 s.
	CoordinatorPatience = 6
	// ProcessPatience is for how many beats the coordinator may be: it may have been stopped (Ctrl-Z), and goes on.
	ProcessPatience = 20
)

var (
	// ErrSilent says that the other end is there, or may be, and does not answer.
	ErrSilent = errors.New("fell silent")
	// ErrEnded says that the line has ended.
	ErrEnded = errors.New("its line ended")
)

// Peer is the other end of a line. It is told once in a while that this end is alive, and found out if it is not. Make one with
// [NewPeer], and Close it.
type Peer struct {
	line     Line
	patience int
	sending  sync.Mutex
	received chan Message
	ended    chan struct{} // closed when err is there
	end      sync.Once
	err      error
	silent   atomic.Int32 // beats without a message while one is waited for; negative while nobody listens
	stop     context.CancelFunc
}

// NewPeer returns the peer at the other end of a line, which may be silent for so many beats. It closes the line.
func NewPeer(line Line, patience int) *Peer {
	ctx, stop := context.WithCancel(context.Background())
	p := &Peer{line: line, patience: patience, received: make(chan Message), ended: make(chan struct{}), stop: stop}
	go p.listen(ctx)
	go p.watch()
	go p.speak(ctx)
	return p
}

// listen hands on what is received, until the line ends.
func (p *Peer) listen(ctx context.Context) {
	for {
		p.silent.Store(0)
		m, err := p.line.Receive(ctx)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = ErrEnded
			}
			p.fail(err)
			return
		}
		p.silent.Store(-1 << 30) // who does not listen hears nothing
		if m.Kind == kindAlive {
			continue
		}
		select {
		case p.received <- m:
		case <-p.ended:
			return
		}
	}
}

// watch counts the beats in which nothing was heard.
func (p *Peer) watch() {
	p.eachBeat(func() {
		if int(p.silent.Add(1)) > p.patience {
			p.fail(fmt.Errorf("%w for %v", ErrSilent, time.Duration(p.patience)*beat))
		}
	})
}

// speak tells the other end that this one is alive. An error is left to who listens: what came before the end is heard first.
func (p *Peer) speak(ctx context.Context) {
	p.eachBeat(func() {
		if p.sending.TryLock() { // who sends is alive
			_ = p.line.Send(ctx, Message{Kind: kindAlive})
			p.sending.Unlock()
		}
	})
}

func (p *Peer) eachBeat(do func()) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case <-p.ended:
			return
		}
	}
}

// fail ends the talk. The first reason counts.
func (p *Peer) fail(err error) {
	p.end.Do(func() {
		p.err = err
		close(p.ended)
		p.stop()
		_ = p.line.Close() // whoever sends or receives returns
	})
}

// Send sends a message.
func (p *Peer) Send(ctx context.Context, kind string, body any) error {
	m, err := NewMessage(kind, body)
	if err != nil {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := p.line.Send(ctx, m); err != nil {
		select {
		case <-p.ended:
			return p.err
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
			return fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
	return nil
}

// Receive waits for the next message: until ctx ends, the line does, or the other end has been silent for too long.
func (p *Peer) Receive(ctx context.Context) (Message, error) {
	select {
	case m := <-p.received:
		return m, nil
	case <-p.ended:
		return Message{}, p.err
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	}
}

// Expect waits for a message of that kind and reads it. That the other end failed is its error.
func (p *Peer) Expect(ctx context.Context, kind string, into any) error {
	m, err := p.Receive(ctx)
	if err != nil {
		return err
	}
	return m.As(kind, into)
}

// As reads the body of a message of that kind; of any other one it is an error: that the other end failed, if it says so.
func (m Message) As(kind string, into any) error {
	switch {
	case m.Kind == kind && into == nil:
		return nil
	case m.Kind == kind:
		return m.Read(into)
	case m.Kind == KindFailed:
		var failed Failed
		if err := m.Read(&failed); err != nil {
			return err
		}
		return errors.New(failed.Error)
	}
	return fmt.Errorf("it said %q, not %q", m.Kind, kind)
}

// Ended is closed when the talk has ended.
func (p *Peer) Ended() <-chan struct{} { return p.ended }

// Close ends the talk and closes the line.
func (p *Peer) Close() error {
	p.fail(errors.New("the talk is over"))
	return nil
}
