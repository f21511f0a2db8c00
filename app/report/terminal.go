// Package report shows runs on the terminal, while they go and when they are over.
package report

import (
	"fmt"
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
)

// Terminal prints for people. Colours and the live view appear on a terminal only; elsewhere it prints plain
// lines. NO_COLOR and TERM=dumb are obeyed. Its methods hand over what is to be printed, and wait for nobody who reads it;
// Close it to see it written.
type Terminal struct {
	*printer
	live  bool // draws a status line
	modes modes.Table
}

// plainWidth is how many columns there are where nobody tells.
const plainWidth = 80

// NewTerminal returns a terminal that prints to file, in the colours of the modes. The environment is consulted for NO_COLOR,
// TERM and CI. The function is told of the first write that fails; there is none after it.
func NewTerminal(file *os.File, environ []string, table modes.Table, failed func(error)) *Terminal {
	out := colorprofile.NewWriter(file, environ)
	if variable(environ, "NO_COLOR") != "" { // whatever it says: see no-color.org
		out.Profile = min(out.Profile, colorprofile.ASCII)
	}
	width := func() int {
		columns, _, err := term.GetSize(file.Fd())
		if err != nil || columns <= 0 {
			return plainWidth
		}
		return columns
	}
	kind, ci := variable(environ, "TERM"), variable(environ, "CI")
	return &Terminal{
		printer: newPrinter(out, width, failed),
		live:    term.IsTerminal(file.Fd()) && kind != "" && kind != "dumb" && (ci == "" || ci == "false"),
		modes:   table,
	}
}

// PlainTerminal returns a terminal that prints plain lines to w.
func PlainTerminal(w io.Writer) *Terminal {
	out := &colorprofile.Writer{Forward: w, Profile: colorprofile.NoTTY}
	return &Terminal{printer: newPrinter(out, func() int { return plainWidth }, func(error) {})}
}

// Close returns when all is written. The error is that of the first write that failed.
func (t *Terminal) Close() error { return t.close() }

// variable is the value of a variable, "" if there is none. Of several the last one counts.
func variable(environ []string, name string) (value string) {
	for _, e := range environ {
		if n, v, _ := strings.Cut(e, "="); n == name {
			value = v
		}
	}
	return value
}

// cut is the text without what does not fit into so many columns.
func cut(text string, columns int) string {
	return lipgloss.NewStyle().Inline(true).MaxWidth(max(1, columns)).Render(text)
}

// color is the colour of a mode's name; of one that is not in the table, the terminal's own.
func (t *Terminal) color(mode string) lipgloss.Style {
	m, err := t.modes.Find(mode)
	if err != nil {
		return lipgloss.NewStyle()
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(m.Color))
}

// The colours of what is well, of what is not, and of what to mind.
var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	red   = lipgloss.NewStyle().Foreground(lipgloss.Red)
	green = lipgloss.NewStyle().Foreground(lipgloss.Green)
	amber = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// Notice prints lines that the user should see before the run.
func (t *Terminal) Notice(text string) {
	for line := range strings.Lines(text) {
		t.println(faint.Render(strings.TrimSuffix(line, "\n")))
	}
}

// Warn prints a warning.
func (t *Terminal) Warn(text string) { t.println(amber.Render("warning: ") + text) }

func (t *Terminal) println(text string) { t.print(text + "\n") }

// Summary prints what a run came to, with the first error of each kind.
func (t *Terminal) Summary(r facts.Run) {
	t.println("")
	t.println(bold.Render("summary of "+r.ID+", ") + t.color(r.Mode).Bold(true).Render(r.Mode))
	for _, row := range summaryRows(r) {
		t.println(fmt.Sprintf("  %-16s %s", row.name, row.value))
	}
	for _, err := range r.FirstErrors {
		t.println(fmt.Sprintf("  %-16s %s", "first error", err))
	}
	if r.Error != "" {
		t.println(red.Render("ended early: ") + r.Error)
	}
	t.println(verdictLine(r))
}

// Delivery prints where to look at a run whose spans were delivered, and what was not delivered.
func (t *Terminal) Delivery(r facts.Run, undelivered error, links facts.Links) {
	if r.Spans.Ended > 0 {
		t.println(fmt.Sprintf("spans: %d ended, %d exported, %d dropped", r.Spans.Ended, r.Spans.Exported, r.Spans.Dropped))
	}
	t.Incomplete(r, undelivered)
	rounds := r.Traced()
	if r.Spans.Exported == 0 || len(rounds) == 0 {
		return
	}
	t.println("where to look:")
	first := 0
	if r.Traffic() { // it may be so long that Jaeger has forgotten its first rounds
		first = max(0, len(rounds)-facts.MaxLinks)
	}
	if first > 0 {
		t.println(fmt.Sprintf("  %d earlier rounds, and", first))
	}
	for i, at := range rounds[first:] {
		if i == facts.MaxLinks {
			t.println(fmt.Sprintf("  and %d more rounds", len(rounds)-facts.MaxLinks))
			break
		}
		line := fmt.Sprintf("  round %d  %s", at.Round, links.Trace(at.IDs[0]))
		if len(at.IDs) > 1 {
			line += fmt.Sprintf("  (and %d more slices, linked to it)", len(at.IDs)-1)
		}
		t.println(line)
	}
	t.println("  Grafana  " + links.Run(r))
}

// Incomplete warns of what was not delivered of a run.
func (t *Terminal) Incomplete(r facts.Run, undelivered error) {
	if r.Spans.Dropped > 0 {
		t.Warn("spans were dropped: the traces of this run are incomplete")
	}
	if undelivered != nil {
		t.Undelivered(undelivered)
	}
}

// Undelivered prints what telemetry could not deliver.
func (t *Terminal) Undelivered(err error) {
	for line := range strings.Lines(err.Error()) {
		t.Warn("not delivered: " + strings.TrimSpace(line))
	}
}

func verdictLine(r facts.Run) string {
	if r.Verdict.OK {
		return bold.Render("verdict: ") + green.Render("ok") + ", " + r.Verdict.Text
	}
	return bold.Render("verdict: ") + red.Render("not ok") + ", " + r.Verdict.Text
}

type row struct{ name, value string }

// summaryRows are the figures of a run, in the order in which they are read.
func summaryRows(r facts.Run) []row {
	workers, rounds := herd.Count(r.Workers, "worker"), herd.Count(r.Rounds, "round")
	requests := fmt.Sprintf("%d = %s x %s", r.Requests, workers, rounds)
	if n := len(r.Processes); n > 0 {
		requests = fmt.Sprintf("%d = %s x %s x %s", r.Requests, herd.Count(n, "process"), herd.Count(r.Workers/n, "worker"), rounds)
	}
	if r.Traffic() { // its workers ask on their own
		requests = fmt.Sprintf("%d of %s in %s", r.Requests, workers, rounds)
	}
	rows := []row{
		{"requests", requests},
	}
	if r.NotSent > 0 {
		rows = append(rows, row{"not sent", fmt.Sprintf("%d that were due while too many were on their way", r.NotSent)})
	}
	rows = append(rows, []row{
		{"backend calls", fmt.Sprint(r.BackendCalls)},
		{"expiries", fmt.Sprint(r.Expiries)},
		{"calls per expiry", facts.PerExpiry(r.CallsPerExpiry)},
		{"peak in flight", fmt.Sprint(r.BackendPeak)},
	}...)
	if r.PriceService != nil {
		rows = append(rows, row{"price service", serviceText(*r.PriceService)})
	}
	rows = append(rows, []row{
		{"outcomes", fmt.Sprintf("%d hit, %d filled, %d waited, %d error",
			r.Outcomes["hit"], r.Outcomes["filled"], r.Outcomes["waited"], r.Outcomes["error"])},
		{"GET", fmt.Sprintf("%d hit, %d miss; %d were polls", r.Gets.Hit, r.Gets.Miss, r.Polls)},
	}...)
	if r.Lock.Acquired+r.Lock.Held > 0 {
		rows = append(rows, row{"SET NX PX", fmt.Sprintf("%d acquired, %d held by another", r.Lock.Acquired, r.Lock.Held)},
			row{"re-checks", fmt.Sprintf("%d found the value under the lock", r.Lock.Rechecked)},
			row{"DEL", fmt.Sprintf("%d released, %d lost", r.Lock.Released, r.Lock.Lost)})
	}
	if r.Lock.Timeouts > 0 {
		rows = append(rows, row{"timeouts", fmt.Sprintf("%d waiters gave up", r.Lock.Timeouts)})
	}
	if r.BackendErrors > 0 {
		rows = append(rows, row{"backend errors", fmt.Sprint(r.BackendErrors)})
	}
	if r.StoreErrors > 0 {
		rows = append(rows, row{"store errors", fmt.Sprintf("%d, %d of them tolerated: they changed nothing", r.StoreErrors, r.Tolerated)})
	}
	if r.Refused != (facts.Steps{}) {
		rows = append(rows, row{"refused", r.Refused.String()})
	}
	if r.Unanswered != (facts.Steps{}) {
		rows = append(rows, row{"unanswered", r.Unanswered.String()})
	}
	rows = append(rows, row{"latency", r.Latency.String()})
	if r.WakeLag.Max > 0 || r.WakeLag.Unknown {
		rows = append(rows, row{"wake lag", r.WakeLag.String()})
	}
	if r.Age.Unknown {
		rows = append(rows, row{"age of values", r.Age.String()})
	}
	if r.Spread != nil {
		rows = append(rows, row{"release spread", r.Spread.String()})
	}
	if r.Age.Max > 0 {
		rows = append(rows, row{"age of values", fmt.Sprintf("%v; at most %s overdue", r.Age, facts.DurationOf(r.Overdue.Max))})
	}
	rows = append(rows, row{"Redis counted", redisText(r.RedisCommands)})
	for _, p := range r.Processes {
		name, where, _ := strings.Cut(p.String(), ", ")
		text := fmt.Sprintf("%s: %s, %s", where, herd.Count(p.Requests, "request"), herd.Count(p.BackendCalls, "backend call"))
		if p.Lost != "" {
			text += "; what else it did is not known"
		}
		rows = append(rows, row{name, text})
	}
	return rows
}

func serviceText(s facts.PriceService) string {
	text := "at " + s.URL
	if s.Told != nil {
		text += fmt.Sprintf(": counted %s, %d redundant, %d repeated", herd.Count(s.Told.Calls, "call"), s.Told.Redundant, s.Told.Repeated)
	}
	if s.Text != "" {
		text += "; " + s.Text
	}
	return text
}

func redisText(c facts.RedisCommands) string {
	if c.Standing == "not available" {
		return "not available: the server does not tell, or was restarted"
	}
	text := fmt.Sprintf("%d GET, %d SET, %d EVAL, %d DEL", c.Get, c.Set, c.Eval, c.Del)
	if c.Standing == "shared" {
		text += " (shared: another client used the server)"
	}
	return text
}
