package fleet_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/fleet"
	"cachelab/app/fleet/children"
)

// lines are the two ends of a line in memory.
func lines() (a, b fleet.Line) {
	toA, fromB := io.Pipe()
	toB, fromA := io.Pipe()
	return children.NewLine(toA, fromA), children.NewLine(toB, fromB)
}

func TestAProcessIsWelcomedAndTheTalkIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := lines()
		joined := make(chan error, 1)
		go func() {
			p, welcome, err := fleet.Join(t.Context(), there, fleet.Hello{PID: 4711, Host: "there"})
			if err == nil {
				defer p.Close()
				equal(t, "process", welcome.Process, 3)
				for range 3 {
					err = errors.Join(err, p.Send(t.Context(), fleet.KindLines, fleet.Lines{}))
				}
				err = errors.Join(err, p.Send(t.Context(), fleet.KindDone, fleet.Done{Connections: 7}), p.Expect(t.Context(), fleet.KindEnd, nil))
			}
			joined <- err
		}()
		m, err := fleet.Admit(t.Context(), here, func(h fleet.Hello) (fleet.Welcome, string) { return fleet.Welcome{Process: 3}, "" })
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "name", m.String(), "process 3 (pid 4711)")
		time.Sleep(time.Minute) // both say that they are alive, and neither is told of it
		for range 3 {
			if err := m.Expect(t.Context(), fleet.KindLines, nil); err != nil {
				t.Fatal(err)
			}
		}
		var done fleet.Done
		if err := m.Expect(t.Context(), fleet.KindDone, &done); err != nil || done.Connections != 7 {
			t.Errorf("%+v, %v", done, err)
		}
		if err := m.Send(t.Context(), fleet.KindEnd, nil); err != nil {
			t.Error(err)
		}
		if err := <-joined; err != nil {
			t.Error(err)
		}
		if _, err := m.Receive(t.Context()); !errors.Is(err, fleet.ErrEnded) {
			t.Errorf("after the end: %v", err)
		}
		_ = m.Close()
	})
}

// silent is a line whose other end takes everything and says nothing.
type silent struct{ closed chan struct{} }

func (s silent) Send(context.Context, fleet.Message) error { return nil }
func (s silent) Receive(context.Context) (fleet.Message, error) {
	<-s.closed
	return fleet.Message{}, io.EOF
}
func (s silent) Close() error { close(s.closed); return nil }

func TestWhoFallsSilentIsNamedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		p := fleet.NewPeer(silent{make(chan struct{})}, fleet.CoordinatorPatience)
		_, err := p.Receive(t.Context())
		if !errors.Is(err, fleet.ErrSilent) || err.Error() != "fell silent for 3s" {
			t.Errorf("got %v", err)
		}
		if after := time.Since(started); after < 3*time.Second || after > 4*time.Second {
			t.Errorf("after %v", after)
		}
	})
}

// Who is not listened to for a while, as its messages are worked at, is not silent.
func TestWhoWaitsToBeHeardIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := lines()
		a, b := fleet.NewPeer(here, fleet.CoordinatorPatience), fleet.NewPeer(there, fleet.CoordinatorPatience)
		go func() {
			for range 2 {
				if err := b.Send(t.Context(), fleet.KindGathered, nil); err != nil {
					t.Error(err)
				}
			}
		}()
		for range 2 {
			time.Sleep(time.Minute)
			if err := a.Expect(t.Context(), fleet.KindGathered, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestAnotherProtocolIsRefusedByNameAtBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := lines()
		newer := fleet.NewPeer(there, fleet.ProcessPatience)
		go func() {
			_ = newer.Send(t.Context(), fleet.KindHello, fleet.Hello{Protocol: 99, PID: 4711, Host: "there"})
		}()
		refused := make(chan string, 1)
		go func() {
			var why fleet.Refused
			if err := newer.Expect(t.Context(), fleet.KindRefused, &why); err != nil {
				why.Why = err.Error()
			}
			refused <- why.Why
		}()
		_, err := fleet.Admit(t.Context(), here, func(fleet.Hello) (fleet.Welcome, string) { return fleet.Welcome{}, "" })
		if !errors.Is(err, fleet.ErrRefused) || !strings.HasPrefix(err.Error(), "process 4711 on there was refused: it talks protocol 99, and the coordinator ") {
			t.Errorf("the coordinator says: %v", err)
		}
		if why := <-refused; !strings.HasPrefix(why, "it talks protocol 99, and the coordinator ") {
			t.Errorf("the process is told: %s", why)
		}
		_ = newer.Close()
	})
}

// What a process said last is heard before its end.
func TestAFailureIsTheErrorOfWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := lines()
		a, b := fleet.NewPeer(here, fleet.CoordinatorPatience), fleet.NewPeer(there, fleet.ProcessPatience)
		go func() {
			_ = b.Send(t.Context(), fleet.KindFailed, fleet.Failed{Error: "no Redis there"})
			_ = b.Close()
		}()
		time.Sleep(10 * time.Second)
		if err := a.Expect(t.Context(), fleet.KindReady, nil); err == nil || err.Error() != "no Redis there" {
			t.Errorf("got %v", err)
		}
		_ = a.Close()
	})
}
