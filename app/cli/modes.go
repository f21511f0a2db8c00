package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// theFix is the mode of load and of the drills.
const theFix = "fixed"

// theSeed are the modes of compare and live, unless others are asked for: the herd and the fix.
const theSeed = "broken,fixed"

// newLoadCommand is "load": the fix, with a larger herd.
func newLoadCommand(p Process) *cobra.Command {
	mode, err := p.Modes.Find(theFix)
	command := newRunCommand(p, large(), "load", "fixed with 500 workers and 10 rounds, without a line for each step",
		`The same as fixed, larger and quieter: the number of backend calls does not grow with the herd.`, lab.Plan{Mode: mode, Scenario: modes.Load})
	command.PreRunE = func(*cobra.Command, []string) error { return err }
	return command
}

// newCompareCommand is "compare": a run of each of some modes, and one table.
func newCompareCommand(p Process) *cobra.Command {
	table := p.Modes
	var chosen []modes.Mode
	s := newCompareSettings(table, &chosen)
	command := &cobra.Command{
		Use:   "compare",
		Short: "broken, then fixed (or the modes that --modes names), side by side",
		Long: `Makes a run of each mode with the same settings, one after the other, and prints one table: the numbers of each, and how
many times less they are than those of the first.`,
		Example: "  cachelab compare\n  cachelab compare --modes " + strings.Join(table.InRounds().Names(), ",") + " --workers 200",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s, func(ctx context.Context, terminal *report.Terminal) error {
				return runPlans(ctx, p, s, terminal, c.CommandPath(), inRounds(chosen))
			})
		},
	}
	s.register(command.Flags())
	return command
}

func newCompareSettings(table modes.Table, chosen *[]modes.Mode) *settings {
	s := newSettings(usual())
	add(s, "modes", theSeed, "which to compare, with commas between them: "+strings.Join(table.InRounds().Names(), ", "), chosen, modesInRounds(table))
	return s
}

// inRounds are plans of modes, in rounds.
func inRounds(list []modes.Mode) (plans []lab.Plan) {
	for _, mode := range list {
		plans = append(plans, lab.Plan{Mode: mode, Scenario: modes.Rounds})
	}
	return plans
}

// modesInRounds reads names of modes, and refuses those whose promise needs traffic.
func modesInRounds(table modes.Table) func(string) ([]modes.Mode, error) {
	return func(text string) ([]modes.Mode, error) {
		list, err := modeList(table)(text)
		errs := []error{err}
		for _, m := range list {
			if m.Traffic {
				errs = append(errs, fmt.Errorf("the promise of %s needs traffic, not rounds: cachelab %[1]s, or cachelab live --mode %[1]s --rate 400", m.Name))
			}
		}
		return list, errors.Join(errs...)
	}
}

// modeList reads names of modes with commas between them; "all" are those of the table, "both" the seed's two.
func modeList(table modes.Table) func(string) ([]modes.Mode, error) {
	return func(text string) (list []modes.Mode, err error) {
		switch text {
		case "both":
			text = theSeed
		case "all":
			text = strings.Join(table.Names(), ",")
		}
		var errs []error
		for name := range strings.SplitSeq(text, ",") {
			mode, err := table.Find(strings.TrimSpace(name))
			for _, other := range list {
				if err == nil && other.Name == mode.Name {
					err = fmt.Errorf("%s is there twice", mode.Name)
				}
			}
			list, errs = append(list, mode), append(errs, err)
		}
		return list, errors.Join(errs...)
	}
}
