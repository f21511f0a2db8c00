package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// welcomeWait is how long either end waits for the other's first words, once there is a line.
const welcomeWait = 10 * time.Second

// ErrRefused says that the coordinator does not want the process.
var ErrRefused = errors.New("refused")

// Join asks the coordinator at the other end of a line to take part, and returns it with what it told. The caller must Close it.
func Join(ctx context.Context, line Line, hello Hello) (*Peer, Welcome, error) {
	hello.Protocol = Protocol
	p := NewPeer(line, ProcessPatience)
	welcome, err := join(ctx, p, hello)
	if err != nil {
		return nil, Welcome{}, errors.Join(err, p.Close())
	}
	return p, welcome, nil
}

func join(ctx context.Context, p *Peer, hello Hello) (welcome Welcome, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, welcomeWait, fmt.Errorf("the coordinator said nothing within %v", welcomeWait))
	defer cancel()
	if err := p.Send(limited, KindHello, hello); err != nil {
		return welcome, fmt.Errorf("say hello to the coordinator: %w", err)
	}
	m, err := p.Receive(limited)
	if err != nil {
		return welcome, fmt.Errorf("wait for the coordinator's welcome: %w", err)
	}
	if m.Kind == KindRefused {
		var refused Refused
		if err := m.Read(&refused); err != nil {
			return welcome, err
		}
		return welcome, fmt.Errorf("%w by the coordinator: %s", ErrRefused, refused.Why)
	}
	return welcome, m.As(KindWelcome, &welcome)
}

// Admit hears who is at the other end of a line, and welcomes or refuses it. The function says why, if it is to be refused,
// besides for its protocol; else what it is told. The caller must Close the member.
func Admit(ctx context.Context, line Line, judge func(Hello) (welcome Welcome, why string)) (*Member, error) {
	p := NewPeer(line, CoordinatorPatience)
	m, err := admit(ctx, p, judge)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return m, nil
}

func admit(ctx context.Context, p *Peer, judge func(Hello) (Welcome, string)) (*Member, error) {
	limited, cancel := context.WithTimeoutCause(ctx, welcomeWait, fmt.Errorf("it said nothing within %v", welcomeWait))
	defer cancel()
	m := &Member{Peer: p}
	if err := p.Expect(limited, KindHello, &m.Hello); err != nil {
		return nil, fmt.Errorf("wait for a process's hello: %w", err)
	}
	welcome, why := Welcome{}, ""
	if m.Protocol != Protocol {
		why = fmt.Sprintf("it talks protocol %d, and the coordinator %d: use the same version of the program", m.Protocol, Protocol)
	} else {
		welcome, why = judge(m.Hello)
	}
	if why != "" {
		return nil, errors.Join(fmt.Errorf("process %d on %s was %w: %s", m.PID, m.Host, ErrRefused, why), p.Send(limited, KindRefused, Refused{why}))
	}
	m.Number = welcome.Process
	if err := p.Send(limited, KindWelcome, welcome); err != nil {
		return nil, fmt.Errorf("welcome %v: %w", m, err)
	}
	return m, nil
}
