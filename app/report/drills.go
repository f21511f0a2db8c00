package report

import (
	"fmt"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"cachelab/app/facts"
)

// Drills prints runs of drills as one table, and their verdicts below it.
func (t *Terminal) Drills(runs []facts.Run) {
	var rows [][]string
	for _, r := range runs {
		ok := "ok"
		if !r.Verdict.OK {
			ok = "not ok"
		}
		rows = append(rows, []string{r.Drill, fmt.Sprint(r.BackendCalls), fmt.Sprint(r.Expiries), fmt.Sprint(r.BackendPeak),
			fmt.Sprint(r.Outcomes["error"]), fmt.Sprint(r.Lock.Lost), fmt.Sprintf("%.1f s", r.Duration), ok})
	}
	style := func(row, column int) lipgloss.Style {
		cell := lipgloss.NewStyle().Padding(0, 1)
		switch {
		case column == 7 && row >= 0 && runs[row].Verdict.OK:
			return cell.Inherit(green)
		case column == 7 && row >= 0:
			return cell.Inherit(red)
		case column > 0:
			return cell.Align(lipgloss.Right)
		}
		return cell
	}
	t.println("")
	t.table(table.New().Headers("drill", "calls", "expiries", "peak", "errors", "lost", "time", "verdict").Rows(rows...).StyleFunc(style))
	for _, r := range runs {
		t.println(bold.Render(r.Drill+" ") + verdictLine(r))
	}
}
