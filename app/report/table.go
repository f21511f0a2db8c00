package report

import (
	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
)

// Table prints rows under headers: the first column as it is, the others aligned to the right. Rows for which wrong
// says so are red.
func (t *Terminal) Table(headers []string, rows [][]string, wrong func(row int) bool) {
	style := func(row, column int) lipgloss.Style {
		cell := lipgloss.NewStyle().Padding(0, 1)
		if column > 0 {
			cell = cell.Align(lipgloss.Right)
		}
		if row != table.HeaderRow && wrong(row) {
			cell = cell.Inherit(red)
		}
		return cell
	}
	t.table(table.New().Headers(headers...).Rows(rows...).StyleFunc(style))
}

// table prints a table, which is made narrower for a terminal that is.
func (t *Terminal) table(of *table.Table) {
	of.Border(lipgloss.RoundedBorder())
	if columns := t.width(); lipgloss.Width(of.String()) > columns {
		of.Width(columns)
	}
	t.println(of.String())
}

// Say prints a line.
func (t *Terminal) Say(text string) { t.println(text) }
