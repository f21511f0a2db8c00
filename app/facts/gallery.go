package facts

import "fmt"

// Gallery gives the figures of runs under the same open traffic: a row for each figure, with its name and then its value in each
// run. Latencies count from when the requests were due.
func Gallery(runs []Run) [][]string {
	var rows [][]string
	row := func(name string, of func(Run) string) {
		cells := []string{name}
		for _, r := range runs {
			cells = append(cells, of(r))
		}
		rows = append(rows, cells)
	}
	whole := func(name string, of func(Run) int) {
		row(name, func(r Run) string { return fmt.Sprint(of(r)) })
	}
	tenths := func(name string, of func(Run) float64) {
		row(name, func(r Run) string { return fmt.Sprintf("%.1f", of(r)) })
	}
	time := func(name string, of func(Run) float64) {
		row(name, func(r Run) string { return shortText(of(r)) })
	}
	whole("backend calls", func(r Run) int { return r.BackendCalls })
	row("calls per TTL", func(r Run) string { return fmt.Sprintf("%.2f", r.CallsPerTTL) })
	whole("redundant", func(r Run) int { return r.Redundant })
	whole("repeated", func(r Run) int { return r.Repeated })
	whole("peak in flight", func(r Run) int { return r.BackendPeak })
	time("latency p50", func(r Run) float64 { return r.Latency.P50 })
	time("latency p99", func(r Run) float64 { return r.Latency.P99 })
	time("latency max", func(r Run) float64 { return r.Latency.Max })
	tenths("waited, %", func(r Run) float64 { return quotient(100*float64(r.Outcomes["waited"]), float64(r.Requests)) })
	row("oldest value", func(r Run) string { return highest(r.Age) })
	row("overdue", func(r Run) string { return highest(r.Overdue) })
	row("cmds / request", func(r Run) string { return fmt.Sprintf("%.2f", r.CommandsPerRequest) })
	whole("not sent", func(r Run) int { return r.NotSent })
	return rows
}

func highest(m Milliseconds) string {
	if m.Unknown { // across machines
		return "n/a"
	}
	return shortText(m.Max)
}

// shortText is a time as narrow as a table of many modes needs it.
func shortText(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case ms >= 10 && ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return millisecondsText(ms)
}
