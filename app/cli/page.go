package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"cachelab/app/facts"
	"cachelab/app/lab"
	"cachelab/app/page"
)

// writePage writes the HTML report of what there is. The error, if any, is why it is not all.
func writePage(s *settings, command string, plans []lab.Plan, runs []facts.Run, early error) (err error) {
	return s.writePage(page.Page{Command: s.command(command), Settings: s.list(), Planned: len(plans), Version: s.Version}, plans, runs, early)
}

// page puts the runs on a page, each of the plan at its place.
func (s *settings) page(p page.Page, plans []lab.Plan, runs []facts.Run, early error) page.Page {
	p.Links, p.Made = s.Links, time.Now()
	for i, run := range runs {
		one := page.Run{Run: run, Color: plans[i].Mode.Color, About: plans[i].Mode.Short, Good: plans[i].Mode.Good, Costs: plans[i].Mode.Costs}
		if plans[i].Drill != nil {
			one.About = plans[i].Drill.Short
		}
		p.Runs = append(p.Runs, one)
	}
	if early != nil {
		p.Error = early.Error()
	}
	return p
}

// writePage writes a page with the runs.
func (s *settings) writePage(p page.Page, plans []lab.Plan, runs []facts.Run, early error) (err error) {
	p = s.page(p, plans, runs, early)
	file, err := os.Create(s.report)
	if err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return page.Write(file, p)
}

// list is what the run was made with. A default that is computed is shown with its value.
func (s *settings) list() (all []page.Setting) {
	for _, one := range s.all {
		if one.fixed {
			continue
		}
		shown := page.Setting{Name: one.name, Value: one.shown(), From: one.from}
		if one.name == "wait-timeout" {
			shown.Value = s.WaitTimeout.String()
		}
		all = append(all, shown)
	}
	return all
}

// command is the command line that makes the same run again, whether flags or variables said so; without passwords.
func (s *settings) command(path string) string {
	words := []string{path}
	for _, one := range s.all {
		if one.from != "default" && !one.fixed {
			words = append(words, "--"+one.name+"="+shellQuoted(one.shown()))
		}
	}
	return strings.Join(words, " ")
}

// shellQuoted is text as a shell takes it for one word.
func shellQuoted(text string) string {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.,:/%@+=", r)
	}
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	switch {
	case strings.ContainsFunc(text, hidden):
		// In the form that bash and zsh read.
		quoted := strconv.Quote(text)
		return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
	case text == "" || strings.ContainsFunc(text, special):
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}
