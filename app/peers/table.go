package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// print writes the results as tables.
func (r results) print(out io.Writer) {
	fmt.Fprintf(out, "%s, Redis %s, %d CPUs; a fill takes %g ms\n\n", r.Go, r.Redis, r.CPUs, r.FillMS)
	rows := [][]string{{"peer", "version", "lines to use it", "a dead winner costs", "calls while the backend fails", "what it is"}}
	for _, p := range r.Peers {
		rows = append(rows, []string{p.Name, cmp.Or(p.Version, "-"), fmt.Sprint(p.Lines), p.takeover(), p.failureCalls(), p.What})
	}
	table(out, rows)
	for _, h := range r.shapes() {
		fmt.Fprintf(out, "\n%s: median of %d repeats (lowest to highest)\n\n", h, r.Repeats)
		rows := [][]string{{"peer", "expiries", "calls for each", "extra wait p50 ms", "p99 ms", "p99 of all", "commands a request", "bytes", "CPU us", "Redis's CPU us", "failed"}}
		for _, one := range r.Herds {
			if one.Shape == h {
				rows = append(rows, []string{one.Peer, fmt.Sprint(one.Expiries), one.Calls.text("%.2f"), one.P50.text("%.1f"), one.P99.text("%.1f"), fmt.Sprintf("%.1f", one.Pooled),
					one.Commands.text("%.2f"), one.Bytes.text("%.0f"), one.CPU.text("%.0f"), one.RedisCPU.text("%.0f"), one.failed()})
			}
		}
		table(out, rows)
	}
}

// shapes are those of the herds, in their order.
func (r results) shapes() (all []string) {
	for _, h := range r.Herds {
		if len(all) == 0 || all[len(all)-1] != h.Shape {
			all = append(all, h.Shape)
		}
	}
	return all
}

func (p peerResult) takeover() string {
	switch {
	case p.TakeoverS == nil:
		return cmp.Or(p.TakeoverErr, "-")
	case *p.TakeoverS == 0:
		return "0: all call"
	}
	return fmt.Sprintf("%.1f s", *p.TakeoverS)
}

func (p peerResult) failureCalls() string {
	if p.FailureCalls == nil {
		return "-"
	}
	return fmt.Sprint(*p.FailureCalls)
}

func (h herdResult) failed() string {
	if h.Failed == 0 {
		return "0"
	}
	return fmt.Sprintf("%d of %d: %s", h.Failed, h.Requests, h.Err)
}

// text is the median, and the others if they look different.
func (s spread) text(format string) string {
	median, low, high := fmt.Sprintf(format, s.Median), fmt.Sprintf(format, s.Min), fmt.Sprintf(format, s.Max)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s to %s)", median, low, high)
}

// table writes rows as Markdown, in columns.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	for i, row := range rows {
		fmt.Fprintln(w, "| "+strings.Join(row, "\t| ")+"\t|")
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("| ---\t", len(row))+"|")
		}
	}
	_ = w.Flush()
}
