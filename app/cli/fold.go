package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/page"
	"cachelab/app/report"
	"cachelab/app/results"
)

// newFoldCommand is "fold": the same numbers again, out of what --results kept.
func newFoldCommand(p Process) *cobra.Command {
	s := newSettings(defaults{workers: "1", rounds: "1", quiet: "false"})
	for _, one := range s.all {
		one.fixed = !slices.Contains([]string{"jaeger-url", "grafana-url", "json", "report", "quiet"}, one.name)
		if one.name == "quiet" {
			one.usage = "of several runs, the table alone"
		}
	}
	command := &cobra.Command{
		Use:   "fold FILE...",
		Short: "add up what runs kept with --results: files of one run become one run, several runs a table",
		Long: `Reads what --results kept, and counts it again: the summary, JSON and page are those of the run itself, but for the round
that is drawn. The lines may stand in any order and in any number of files; those of one run become one run. Exit code 3 if
a verdict is not ok, or lines are missing.`,
		Example: "  cachelab fixed --results fixed.jsonl\n  cachelab fold fixed.jsonl --json -\n  cachelab fold monday.jsonl tuesday.jsonl --quiet",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errUsage{errors.New("fold which files? A run keeps them with --results FILE")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error {
			return onScreen(c, p, s, func(_ context.Context, terminal *report.Terminal) error {
				return runFold(p, s, terminal, c.CommandPath(), files)
			})
		},
	}
	s.register(command.Flags())
	return command
}

func runFold(p Process, s *settings, terminal *report.Terminal, command string, files []string) error {
	folded, err := results.Read(files...)
	if err != nil {
		return err
	}
	var runs []facts.Run
	for _, f := range folded {
		if run := f.Run(); run.Requests > 0 {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return fmt.Errorf("no request was made in %s", strings.Join(files, ", "))
	}
	gallery := !slices.ContainsFunc(runs, func(r facts.Run) bool { return !r.Gallery() })
	if len(runs) == 1 && !gallery || !s.Quiet {
		for _, run := range runs {
			terminal.Summary(run)
			terminal.Delivery(run, nil, s.Links)
		}
	}
	switch {
	case gallery:
		terminal.Gallery(runs, s.Links)
	case len(runs) > 1:
		if slices.ContainsFunc(runs, func(r facts.Run) bool { return r.Drill == "" }) {
			terminal.Compare(runs...)
		} else {
			terminal.Drills(runs)
		}
	}
	err = writeJSON(p, s.json, len(runs) > 1, runs)
	if s.report != "" {
		about := page.Page{Command: s.command(command) + " " + strings.Join(files, " "), Planned: len(runs), Version: folded[0].Start.Version}
		for _, one := range folded[0].Start.Settings {
			about.Settings = append(about.Settings, page.Setting(one))
		}
		err = errors.Join(err, s.writePage(about, plansOf(p.Modes, runs), runs, nil))
	}
	if err != nil {
		return err
	}
	return verdicts(runs)
}

// planOf is the plan of a run that was made before, perhaps by another version: its mode may not be in the table.
func planOf(table modes.Table, run facts.Run) lab.Plan {
	mode, err := table.Find(run.Mode)
	if err != nil {
		mode = modes.Mode{Name: run.Mode, Color: "#888888"}
	}
	plan := lab.Plan{Mode: mode, Scenario: run.Scenario}
	for _, d := range drill.All() {
		if d.Name == run.Drill {
			plan.Drill = &d
		}
	}
	return plan
}
