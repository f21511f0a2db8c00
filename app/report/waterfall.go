package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"cachelab/app/facts"
	"cachelab/telemetry"
)

const (
	textRows = 12 // workers in a waterfall in text
	// minPlot is how narrow its plot may become.
	minPlot = 10
)

// The signs of a waterfall in text, told apart without their colours too.
const (
	signCall   = '▇'
	signQueued = '░'
	signWait   = '─'
	signPoll   = '•'
	signWinner = '★'
)

var levels = []rune("▁▂▃▄▅▆▇█")

// Waterfalls prints a round of each run as a waterfall, all on one time scale. Runs without a recorded round are
// left out.
func (t *Terminal) Waterfalls(runs ...facts.Run) {
	s := scaleOf(runs)
	for _, r := range runs {
		if len(r.Waterfall.Rows) == 0 {
			continue
		}
		t.println("")
		columns := min(plainWidth, t.width())
		for _, line := range newTextWaterfall(r, s, columns, t.color(r.Mode)).lines() {
			t.println(lipgloss.Wrap(line, columns, ""))
		}
	}
}

// scale is what waterfalls side by side have in common.
type scale struct {
	total time.Duration // the last answer
	peak  int           // most backend calls in flight
}

func scaleOf(runs []facts.Run) scale {
	s := scale{total: 1, peak: 1}
	for _, r := range runs {
		s.total, s.peak = max(s.total, r.Waterfall.Elapsed), max(s.peak, r.Waterfall.Peak)
	}
	return s
}

// tick is the distance of the marks on the time axis: a round number, so that there are at most n after the 0.
func (s scale) tick(n int) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, step := range []time.Duration{unit, 2 * unit, 5 * unit} {
			if s.total/step <= time.Duration(n) {
				return step
			}
		}
	}
}

// axisText is a time on the axis: 0, 250 ms, 1.5 s.
func axisText(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// textWaterfall draws one round.
type textWaterfall struct {
	run    facts.Run
	scale  scale
	digits int
	width  int // of the plot
	accent lipgloss.Style
}

func newTextWaterfall(r facts.Run, s scale, columns int, accent lipgloss.Style) textWaterfall {
	w := textWaterfall{run: r, scale: s, digits: max(2, len(strconv.Itoa(r.Waterfall.Workers))), accent: accent}
	w.width = max(minPlot, columns-w.margin()-len("  peak 50 in flight"))
	return w
}

// margin is what is left of the plot: "  w07 ★ ".
func (w textWaterfall) margin() int { return 6 + w.digits }

func (w textWaterfall) lines() []string {
	round := w.run.Waterfall
	rows := round.Sample(textRows)
	lines := []string{
		bold.Render(fmt.Sprintf("round %d of ", round.Number)) + w.accent.Bold(true).Render(w.run.Mode) +
			fmt.Sprintf(": %s, %s after %s", count(round.Calls, "backend call"), last(round), facts.Duration(round.Elapsed)),
		faint.Render(w.axis()),
	}
	process := ""
	for _, row := range rows {
		if row.Process != process {
			process = row.Process
			lines = append(lines, "  "+bold.Render(process))
		}
		lines = append(lines, w.row(row))
	}
	if text := leftOut(round, len(rows)); text != "" {
		lines = append(lines, strings.Repeat(" ", w.margin())+faint.Render(text))
	}
	return append(lines, w.inFlight(), w.legend(rows))
}

// column is where a time is in the plot.
func (w textWaterfall) column(d time.Duration) int {
	return int(min(max(0, d), w.scale.total-1) * time.Duration(w.width) / w.scale.total)
}

func (w textWaterfall) axis() string {
	line := []rune(strings.Repeat(" ", w.margin()+w.width+len("  peak 50 in flight")))
	for at := time.Duration(0); at <= w.scale.total; at += w.scale.tick(max(1, w.width/8)) {
		copy(line[w.margin()+w.column(at):], []rune("╵"+axisText(at)))
	}
	return strings.TrimRight(string(line), " ")
}

func (w textWaterfall) row(row facts.Row) string {
	mark := " "
	if row.Winner {
		mark = string(signWinner)
	}
	c := newCanvas(w.width)
	for _, bar := range row.Bars {
		from, to := w.column(bar.Start), w.column(bar.End)
		switch bar.Kind {
		case telemetry.SpanBackendCall:
			running := w.column(bar.Start + bar.Queued)
			c.fill(from, running, signQueued, w.accent)
			c.fill(running, to, signCall, w.accent)
		case telemetry.SpanWait:
			c.fill(from, to, signWait, amber)
		case telemetry.SpanGet: // a poll, if it lies on the wait
			if c.cells[from].sign == signWait {
				c.fill(from, from, signPoll, amber)
			}
		}
	}
	return fmt.Sprintf("  w%0*d %s %s  %-6s %10s", w.digits, row.Worker, w.accent.Render(mark), c, row.Outcome, facts.Duration(row.Answer))
}

// inFlight is the most backend calls that were in flight in each column's time.
func (w textWaterfall) inFlight() string {
	most := make([]int, w.width)
	for i, step := range w.run.Waterfall.InFlight {
		end := w.scale.total
		if i+1 < len(w.run.Waterfall.InFlight) {
			end = w.run.Waterfall.InFlight[i+1].At
		}
		for column := w.column(step.At); column <= w.column(end); column++ {
			most[column] = max(most[column], step.N)
		}
	}
	c := newCanvas(w.width)
	for column, n := range most {
		if n > 0 {
			c.fill(column, column, levels[(n*len(levels)-1)/w.scale.peak], w.accent)
		}
	}
	return fmt.Sprintf("%-*s%s  peak %d in flight", w.margin(), "  calls", c, w.run.Waterfall.Peak)
}

func (w textWaterfall) legend(rows []facts.Row) string {
	var winner, queued, waits bool
	for _, row := range rows {
		winner = winner || row.Winner
		for _, bar := range row.Bars {
			queued = queued || w.column(bar.Start+bar.Queued) > w.column(bar.Start)
			waits = waits || bar.Kind == telemetry.SpanWait
		}
	}
	parts := []string{w.accent.Render(string(signCall)) + " backend call"}
	if queued {
		parts = append(parts, w.accent.Render(string(signQueued))+" queued for it")
	}
	if winner {
		parts = append(parts, w.accent.Render(string(signWinner))+" has the fill lock")
	}
	if waits {
		parts = append(parts, amber.Render(string(signWait))+" waits for the fill", amber.Render(string(signPoll))+" looks")
	}
	return strings.Repeat(" ", w.margin()) + strings.Join(parts, "   ")
}

// last is what came at the end, as far as it was recorded.
func last(r facts.Waterfall) string {
	if r.Omitted > 0 {
		return "the last recorded answer"
	}
	return "the last answer"
}

// leftOut says what a picture with that many rows does not show.
func leftOut(r facts.Waterfall, rows int) string {
	if rows == r.Workers {
		return ""
	}
	text := fmt.Sprintf("%d of %d workers, evenly chosen by the time of their answer", rows, r.Workers)
	if r.Omitted > 0 {
		text = fmt.Sprintf("%d of %d workers; of the round's spans %d were kept, %d not", rows, r.Workers, r.Kept, r.Omitted)
	}
	return text
}

// canvas is one line of coloured signs.
type canvas struct{ cells []cell }

type cell struct {
	sign  rune
	style lipgloss.Style
}

func newCanvas(width int) *canvas {
	c := &canvas{make([]cell, width)}
	c.fill(0, width-1, ' ', lipgloss.NewStyle())
	return c
}

// fill draws from a column to another one, both included.
func (c *canvas) fill(from, to int, sign rune, style lipgloss.Style) {
	for i := from; i <= to; i++ {
		c.cells[i] = cell{sign, style}
	}
}

// String renders runs of one sign at once.
func (c *canvas) String() string {
	var text strings.Builder
	for i := 0; i < len(c.cells); {
		j := i
		for j < len(c.cells) && c.cells[j].sign == c.cells[i].sign {
			j++
		}
		text.WriteString(c.cells[i].style.Render(strings.Repeat(string(c.cells[i].sign), j-i)))
		i = j
	}
	return text.String()
}
