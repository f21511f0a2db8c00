//go:build linux

package report_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"charm.land/lipgloss/v2"

	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/facts/factstest"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T, columns uint16) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var number, unlock uint32
	size := [4]uint16{40, columns}
	for request, argument := range map[uintptr]unsafe.Pointer{
		syscall.TIOCGPTN: unsafe.Pointer(&number), syscall.TIOCSPTLCK: unsafe.Pointer(&unlock), syscall.TIOCSWINSZ: unsafe.Pointer(&size),
	} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), request, uintptr(argument)); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}

// shown runs do with a terminal of so many columns, and returns all that it got. Before do is left, await returns when want
// has been shown three times.
func shown(t *testing.T, columns uint16, environ []string, want string, do func(terminal *report.Terminal, await func())) string {
	t.Helper()
	screen, file := openTerminal(t, columns)
	defer screen.Close()
	var text strings.Builder
	seen, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for buffer := make([]byte, 4096); ; {
			n, err := screen.Read(buffer)
			before := strings.Count(text.String(), want)
			text.Write(buffer[:n])
			if before < 3 && strings.Count(text.String(), want) >= 3 {
				close(seen)
			}
			if err != nil { // EIO, once the other end is closed
				return
			}
		}
	}()
	terminal := report.NewTerminal(file, environ, modes.All(), func(err error) { t.Error(err) })
	do(terminal, func() {
		select {
		case <-seen:
		case <-time.After(10 * time.Second):
			t.Errorf("%q was not shown three times", want)
		}
	})
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	file.Close()
	<-done
	return text.String()
}

var xterm = []string{"TERM=xterm-256color"}

func live(terminal *report.Terminal, await func()) {
	view := terminal.Live(20, true)
	view.Phase("broken", 30*time.Second)
	view.Tell(events.Event{Kind: events.GetMiss})
	await()
	view.Close()
}

func rounds(terminal *report.Terminal, await func()) {
	view := terminal.View("fixed", 50, 5, true)
	view.Tell(events.Event{Kind: events.GetMiss})
	await()
	view.Close()
}

var views = []struct {
	name   string
	do     func(*report.Terminal, func())
	status string
}{
	{"live", live, "of 30s · 0 waiting · 0 in flight · 0 backend calls / 0 expiries"},
	{"rounds", rounds, "fixed ──────────────── 0/5 rounds · 0 waiting · 0 in flight · 0 calls so far"},
}

// The cursor goes back to the start of the status line: when a terminal becomes narrower it wraps the line, and takes the
// cursor along; what is erased from there on is all of it.
func TestOnATerminalTheStatusLineIsDrawnInPlace(t *testing.T) {
	for _, view := range views {
		t.Run(view.name, func(t *testing.T) {
			text := shown(t, 120, xterm, view.status, view.do)
			drawn := strings.Count(text, view.status)
			if back := strings.Count(text, view.status+"\r"); back != drawn {
				t.Errorf("the cursor went back from %d of %d status lines", back, drawn)
			}
			if erased := strings.Count(text, "\r\x1b[J"); erased != drawn {
				t.Errorf("%d status lines, and %d were erased:\n%q", drawn, erased, text)
			}
			if _, after, _ := strings.Cut(text, "GET MISS"); strings.Contains(after, "\n\n") || strings.HasSuffix(text, "\n"+view.status+"\r") {
				t.Errorf("the status line is still there:\n%q", text)
			}
		})
	}
}

func TestAStatusLineIsCutToTheTerminal(t *testing.T) {
	for _, view := range views {
		t.Run(view.name, func(t *testing.T) {
			for _, line := range strings.FieldsFunc(shown(t, 60, xterm, " waiting", view.do), func(r rune) bool { return r == '\r' || r == '\n' }) {
				if n := lipgloss.Width(line); n > 59 {
					t.Errorf("%d columns: %q", n, line)
				}
			}
		})
	}
}

func TestNoColorAndDumbTerminals(t *testing.T) {
	colour := regexp.MustCompile(`\x1b\[[0-9;]*3[0-9]`)
	for _, view := range views {
		t.Run(view.name, func(t *testing.T) {
			for _, value := range []string{"1", "yes", "0"} { // whatever it says
				text := shown(t, 120, append(xterm, "NO_COLOR="+value), view.status, func(terminal *report.Terminal, await func()) {
					terminal.Warn("a colour")
					view.do(terminal, await)
				})
				if colour.MatchString(text) {
					t.Errorf("NO_COLOR=%s, and colours in %q", value, text)
				}
			}
			for _, environ := range [][]string{{"TERM=dumb"}, nil, {"TERM=dumb", "CLICOLOR_FORCE=1", "NO_COLOR=1"}} {
				text := shown(t, 120, environ, "", func(terminal *report.Terminal, _ func()) {
					view.do(terminal, func() {})
				})
				if text != "r0 w00 GET MISS\r\n" {
					t.Errorf("%q: got %q", environ, text)
				}
			}
		})
	}
}

func TestAWaterfallIsAsWideAsTheTerminal(t *testing.T) {
	for _, columns := range []int{40, 60, 79, 80, 200} {
		text := shown(t, uint16(columns), []string{"TERM=dumb"}, "", func(terminal *report.Terminal, _ func()) {
			terminal.Waterfalls(factstest.BrokenRun(), factstest.FixedRun())
			terminal.Compare(factstest.BrokenRun(), factstest.FixedRun())
			terminal.Drills([]facts.Run{{Drill: "backend-error", Duration: 12.3}})
		})
		if !strings.Contains(text, "in flight") {
			t.Errorf("no waterfall in:\n%s", text)
		}
		widest := 0
		for line := range strings.Lines(text) {
			if strings.Contains(line, "verdict: ") { // a sentence
				continue
			}
			n := lipgloss.Width(strings.TrimRight(line, "\r\n"))
			widest = max(widest, n)
			if n > min(columns, 80) {
				t.Errorf("%d columns of %d: %s", n, columns, line)
			}
		}
		if columns >= 80 && widest != 80 {
			t.Errorf("%d columns: the widest line has %d", columns, widest)
		}
	}
}
