package report

import (
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"cachelab/app/facts"
)

// coldKey says what all strategies have in common.
const coldKey = `Each begins with a cold key: who asks before the first fill waits for it, or
calls, whatever the strategy. Latency counts from when a request was due.`

// Gallery prints runs under the same open traffic side by side, each in its mode's colour, and what each mode is good for and
// what it costs.
func (t *Terminal) Gallery(runs []facts.Run, links facts.Links) {
	headers, colors := []string{""}, map[int]lipgloss.Style{}
	for _, r := range runs {
		colors[len(headers)] = t.color(r.Mode)
		headers = append(headers, r.Mode)
	}
	t.println("")
	t.table(table.New().Headers(headers...).Rows(facts.Gallery(runs)...).StyleFunc(figures(colors)))
	t.Notice(coldKey)
	for _, r := range runs {
		t.println("")
		t.println(t.color(r.Mode).Bold(true).Render(r.Mode) + ", " + verdictLine(r))
		if m, err := t.modes.Find(r.Mode); err == nil {
			t.println(t.wrapped("  good for: " + m.Good))
			t.println(t.wrapped("  costs:    " + m.Costs))
		}
		if r.Error != "" {
			t.println(red.Render("  ended early: ") + r.Error)
		}
	}
	if at, ok := links.Gallery(runs); ok {
		t.println("\nwhere to look:\n  Grafana  " + at)
	}
}

// wrapped is a sentence that begins with a word in a column of its own, within the terminal.
func (t *Terminal) wrapped(text string) string {
	const indent = 12
	columns := max(indent+minPlot, min(plainWidth, t.width()))
	rest := lipgloss.Wrap(text[indent:], columns-indent, "")
	return text[:indent] + strings.ReplaceAll(rest, "\n", "\n"+strings.Repeat(" ", indent))
}
