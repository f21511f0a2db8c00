package report

import (
	"fmt"
	"time"

	"cachelab/app/events"
	"cachelab/app/herd"
)

// eventLine is one step of one worker: "r1 w07 GET MISS".
func eventLine(e events.Event, digits int) string {
	line := fmt.Sprintf("r%d w%0*d %s", e.Worker.Round, digits, e.Worker.Number, e.Kind)
	switch e.Kind {
	case events.Set:
		line = fmt.Sprintf("%s PX %d", line, e.TTL.Milliseconds())
		if e.Over {
			line += ", over a value that was there"
		}
	case events.WaitEnded:
		line = fmt.Sprintf("r%d w%0*d ", e.Worker.Round, digits, e.Worker.Number)
		if e.Found {
			line += fmt.Sprintf("GET HIT after %s", count(e.Polls, "poll"))
		} else {
			line += fmt.Sprintf("WAIT ends without the value after %s", count(e.Polls, "poll"))
		}
	case events.Failed:
		line = fmt.Sprintf("r%d w%0*d %s failed: %v", e.Worker.Round, digits, e.Worker.Number, e.Text, e.Err)
	case events.Fault:
		line += ": " + e.Text
	}
	return line
}

// roundLine is what one round came to.
func roundLine(s herd.RoundSummary, rounds int) string {
	line := fmt.Sprintf("round %d/%d: %s, %s, %s, %s", s.Number, rounds, count(s.Workers, "worker"),
		count(s.BackendCalls, "backend call"), count(s.Expiries, "expiry"), seconds(s.Elapsed))
	if failed := s.Outcomes["error"]; failed > 0 {
		line += ", " + count(failed, "error")
	}
	return line
}

// count is "1 worker", "2 workers", "3 expiries".
func count(n int, what string) string { return herd.Count(n, what) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
