package facts

import (
	"fmt"
	"time"
)

func (s Steps) String() string { return fmt.Sprintf("%d SET, %d DEL", s.Set, s.Release) }

func (p Process) String() string {
	if p.Elsewhere {
		return fmt.Sprintf("process %d, pid %d on %s", p.Number, p.PID, p.Host)
	}
	return fmt.Sprintf("process %d, pid %d", p.Number, p.PID)
}

func (m Milliseconds) String() string {
	if m.Unknown {
		return "not available across machines"
	}
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s, max %s", millisecondsText(m.P50), millisecondsText(m.P95),
		millisecondsText(m.P99), millisecondsText(m.Max))
}

// PerExpiry is the invariant's number; without an expiry, or without a call, there is none.
func PerExpiry(calls float64) string {
	if calls == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", calls)
}

// Duration is "1.32 s" or "250.0 ms".
func Duration(d time.Duration) string {
	return millisecondsText(float64(d.Microseconds()) / 1000)
}

// DurationOf is [Duration] of milliseconds.
func DurationOf(ms float64) string { return millisecondsText(ms) }

func millisecondsText(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
