package meeting_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/fleet"
	"cachelab/app/internal/redistest"
)

// Connections are cut all the time, some right after Redis has done what it was asked: messages come whole, once and in order.
func TestACutConnectionLosesAndDoublesNothing(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	here, there := pair(t, newRun(t, server.Addr(), "rounds-1"), newRun(t, proxy.Addr(), "rounds-1"), 1)
	const messages = 600
	var all sync.WaitGroup
	all.Go(func() {
		for n := range messages {
			switch {
			case n%100 == 20:
				proxy.CutReply("XADD")
			case n%100 == 50:
				proxy.CutReply("XREAD")
			case n%100 == 70:
				proxy.CutReply("XTRIM")
			case n%100 == 90:
				proxy.Cut()
			}
			send(t, there, message(t, "up", n))
			send(t, here, message(t, "down", n))
		}
	})
	for want := range messages {
		for _, line := range []fleet.Line{here, there} {
			var n int
			if m := receive(t, line); m.Read(&n) != nil || n != want {
				t.Fatalf("%s %s instead of %d", m.Kind, m.Body, want)
			}
		}
	}
	all.Wait()
}

func TestARedisThatStaysAwayIsNamed(t *testing.T) {
	server := redistest.Start(t)
	here, there := pair(t, newRun(t, server.Addr(), "rounds-1"), newRun(t, server.Addr(), "rounds-1"), 1)
	server.Stop()
	began := time.Now()
	var both sync.WaitGroup
	both.Go(func() {
		if err := here.Send(t.Context(), message(t, "n", 1)); err == nil || !strings.Contains(err.Error(), "Redis stayed away for 5s") {
			t.Errorf("send: %v", err)
		}
	})
	both.Go(func() {
		if _, err := there.Receive(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis stayed away for 5s") {
			t.Errorf("receive: %v", err)
		}
	})
	both.Wait()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("that took %v", took)
	}
}

func TestARedisThatWasEmptiedIsNamed(t *testing.T) {
	server := redistest.Start(t)
	here, there := pair(t, newRun(t, server.Addr(), "rounds-1"), newRun(t, server.Addr(), "rounds-1"), 1)
	send(t, here, message(t, "n", 1))
	receive(t, there)
	send(t, here, message(t, "n", 2))
	server.Stop()
	server.Start()
	send(t, here, message(t, "n", 3))
	if m, err := there.Receive(t.Context()); err == nil || !strings.Contains(err.Error(), "is lost, as Redis was emptied") {
		t.Errorf("received %s, %v", m.Body, err)
	}
}
