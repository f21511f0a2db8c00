package report_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"cachelab/app/facts"
	"cachelab/app/facts/factstest"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// All strategies are side by side within 80 columns, however large their figures, each with its sentences.
func TestTheGalleryFitsATerminal(t *testing.T) {
	var runs []facts.Run
	for _, mode := range modes.All() {
		r := factstest.BrokenRun()
		r.Mode, r.Scenario, r.CallsPerTTL, r.CommandsPerRequest, r.NotSent = mode.Name, modes.Gallery, 1234.56, 12.34, 54321
		r.BackendCalls, r.Redundant, r.Repeated, r.BackendPeak = 12345, 12345, 12345, 10000
		r.Latency, r.Age.Max, r.Overdue.Max, r.Outcomes["waited"] = facts.Milliseconds{P50: 999.4, P99: 12345, Max: 23456}, 12345, 9.96, r.Requests
		runs = append(runs, r)
	}
	text := shown(t, 80, []string{"TERM=dumb"}, "", func(terminal *report.Terminal, _ func()) {
		terminal.Gallery(runs, facts.Links{})
	})
	rows := 0
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > 80 && !strings.Contains(line, "verdict: ") {
			t.Errorf("%d columns: %s", n, line)
		}
		if cells := strings.Split(line, "│"); len(cells) == len(runs)+3 {
			rows++
		}
	}
	if rows != 14 { // the header and 13 figures, each in one line
		t.Errorf("%d lines of the table, want 14:\n%s", rows, text)
	}
	words := strings.Join(strings.Fields(text), " ")
	for _, mode := range modes.All() {
		if want := "good for: " + mode.Good + " costs: " + mode.Costs; !strings.Contains(words, want) {
			t.Errorf("not printed: %s", want)
		}
	}
	for _, want := range []string{"calls per TTL 1234.56", "latency p50 999 ms", "latency p99 12.35 s", "waited, % 100.0", "overdue 10.0 ms", "cmds / request 12.34", "not sent 54321"} {
		if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " "), want) {
			t.Errorf("not printed: %s", want)
		}
	}
}
