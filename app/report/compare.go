package report

import (
	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"cachelab/app/facts"
)

// closedLoop says what the requests of a live run do not tell.
const closedLoop = `A worker waits for its answer before it asks again (a closed loop), so a slow
mode is asked less often: a herd slows its own accusers. Its rates and
latencies are kinder than those of users who do not wait for each other.`

// Compare prints runs side by side, each in its mode's colour; two with their ratio.
func (t *Terminal) Compare(runs ...facts.Run) {
	headers, colors := []string{""}, map[int]lipgloss.Style{}
	for _, r := range runs {
		colors[len(headers)] = t.color(r.Mode)
		headers = append(headers, r.Mode)
	}
	if len(runs) == 2 {
		headers = append(headers, "ratio")
	}
	t.println("")
	t.table(table.New().Headers(headers...).Rows(facts.Compare(runs)...).StyleFunc(figures(colors)))
	if runs[0].Traffic() && runs[0].Rate == 0 {
		t.Notice(closedLoop)
	}
	for _, r := range runs {
		t.println(verdictLine(r))
	}
}

// figures is the style of a table of names and figures, some of whose columns have colours.
func figures(colors map[int]lipgloss.Style) func(row, column int) lipgloss.Style {
	return func(_, column int) lipgloss.Style {
		cell := lipgloss.NewStyle().Padding(0, 1)
		if column > 0 {
			cell = cell.Align(lipgloss.Right)
		}
		return cell.Inherit(colors[column])
	}
}
