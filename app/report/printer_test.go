package report_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"cachelab/app/events"
	"cachelab/app/report"
)

// stalled takes nothing until it is released, and tells when it is asked to for the first time.
type stalled struct {
	once           sync.Once
	asked, release chan struct{}
	text           strings.Builder
}

func (s *stalled) Write(text []byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.release
	return s.text.Write(text)
}

// What a stalled terminal is told is bounded: steps are left out and counted, lines of rounds never.
func TestStepsBeyondTheBoundAreLeftOutAndCounted(t *testing.T) {
	const bound = 1 << 18
	screen := &stalled{asked: make(chan struct{}), release: make(chan struct{})}
	terminal := report.PlainTerminal(screen)
	terminal.Say("first")
	<-screen.asked // the printer has it, and no more
	view := terminal.View("fixed", 50, 5, true)
	for range bound + 12 {
		view.Tell(events.Event{Kind: events.GetHit})
	}
	terminal.Say("last")
	close(screen.release)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	text := screen.text.String()
	if n := strings.Count(text, " GET HIT\n"); n != bound {
		t.Errorf("%d steps, want %d", n, bound)
	}
	if !strings.HasSuffix(text, " GET HIT\n(12 steps not shown: the screen did not keep up)\nlast\n") {
		t.Errorf("ends with %q", text[len(text)-200:])
	}
}

var errFull = errors.New("no space left")

type fullScreen struct{ writes int }

func (s *fullScreen) Write([]byte) (int, error) {
	s.writes++
	return 0, errFull
}

func TestCloseTellsWhatCouldNotBeWritten(t *testing.T) {
	screen := &fullScreen{}
	terminal := report.PlainTerminal(screen)
	for range 10 {
		terminal.Say("a line")
	}
	if err := terminal.Close(); !errors.Is(err, errFull) || screen.writes != 1 {
		t.Errorf("%v after %d writes", err, screen.writes)
	}
}
