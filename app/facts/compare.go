package facts

import "fmt"

// Compare gives the figures of runs; of two, also how many times less the second's are. The modes of a live run had unequal
// time, and did not ask equally often: their figures are rates, shares and quantiles.
func Compare(runs []Run) [][]string {
	whole := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	perSecond := func(n func(Run) int) func(Run) float64 {
		return func(r Run) float64 { return quotient(float64(n(r)), r.Duration) }
	}
	tenths := func(n float64) string { return fmt.Sprintf("%.1f", n) }
	gets := func(r Run) int { return r.Gets.Hit + r.Gets.Miss }
	waited := func(r Run) int { return r.Outcomes["waited"] }

	callsPerExpiry := compared(runs, "calls per expiry", PerExpiry, func(r Run) float64 { return r.CallsPerExpiry })
	p50 := compared(runs, "latency p50", millisecondsText, func(r Run) float64 { return r.Latency.P50 })
	p99 := compared(runs, "latency p99", millisecondsText, func(r Run) float64 { return r.Latency.P99 })
	if runs[0].Traffic() {
		return [][]string{
			compared(runs, "backend calls / s", tenths, perSecond(func(r Run) int { return r.BackendCalls })),
			callsPerExpiry,
			p50, p99,
			compared(runs, "requests / s", tenths, perSecond(func(r Run) int { return r.Requests })),
			compared(runs, "GET / request", tenths, func(r Run) float64 { return quotient(float64(gets(r)), float64(r.Requests)) }),
			compared(runs, "waited, % of requests", tenths, func(r Run) float64 { return quotient(100*float64(waited(r)), float64(r.Requests)) }),
		}
	}
	return [][]string{
		compared(runs, "backend calls", whole, func(r Run) float64 { return float64(r.BackendCalls) }),
		compared(runs, "expiries", whole, func(r Run) float64 { return float64(r.Expiries) }),
		callsPerExpiry,
		compared(runs, "peak in flight", whole, func(r Run) float64 { return float64(r.BackendPeak) }),
		p50, p99,
		compared(runs, "GET", whole, func(r Run) float64 { return float64(gets(r)) }),
		compared(runs, "waited", whole, func(r Run) float64 { return float64(waited(r)) }),
	}
}

// compared is a row: a figure of each run, and of two how many times less the second is.
func compared(runs []Run, name string, shown func(float64) string, of func(Run) float64) []string {
	ratio := func(a, b float64) string {
		if a == 0 || b == 0 { // none of both
			return "-"
		}
		return fmt.Sprintf("%.1f x", a/b)
	}
	row := []string{name}
	for _, r := range runs {
		row = append(row, shown(of(r)))
	}
	if len(runs) == 2 {
		row = append(row, ratio(of(runs[0]), of(runs[1])))
	}
	return row
}

// quotient is a / b, and 0 where there is nothing to divide by.
func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
