//go:build linux

package report_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"cachelab/app/modes"
	"cachelab/app/report"
)

// openTerminal returns both ends of a pseudo-terminal of 120 columns.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var number, unlock uint32
	size := [4]uint16{40, 120}
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

func TestOnATerminalTheStatusLineIsDrawnInPlace(t *testing.T) {
	for _, test := range []struct {
		name  string
		start func(*report.Terminal) interface{ Close() }
		want  string
	}{
		{"live", func(term *report.Terminal) interface{ Close() } {
			view := term.Live(t.Context(), 20, false)
			view.Phase("broken", 30*time.Second)
			return view
		}, "of 30s · 0 waiting · 0 in flight · 0 backend calls / 0 expiries"},
		{"rounds", func(term *report.Terminal) interface{ Close() } { return term.View(t.Context(), "fixed", 50, 5, false) },
			" 0/5 rounds · 0 waiting · 0 in flight · 0 calls so far"},
	} {
		t.Run(test.name, func(t *testing.T) {
			screen, terminal := openTerminal(t)
			defer screen.Close()
			var shown strings.Builder
			drawn, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for buffer := make([]byte, 4096); ; {
					n, err := screen.Read(buffer)
					before := strings.Count(shown.String(), test.want)
					shown.Write(buffer[:n])
					if before < 3 && strings.Count(shown.String(), test.want) >= 3 {
						close(drawn)
					}
					if err != nil { // EIO, once the other end is closed
						return
					}
				}
			}()
			view := test.start(report.NewTerminal(terminal, []string{"TERM=xterm-256color"}, modes.All()))
			select {
			case <-drawn:
			case <-time.After(10 * time.Second):
				t.Error("the status line was not drawn three times")
			}
			view.Close()
			terminal.Close()
			<-done
			lines := strings.Count(shown.String(), test.want)
			if up := strings.Count(shown.String(), "\x1b[1A\x1b[J"); up < lines-1 {
				t.Errorf("%d status lines, and the cursor went up %d times:\n%q", lines, up, shown.String())
			}
		})
	}
}
