package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/facts"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/page"
	"cachelab/app/report"
)

// newGalleryCommand is "gallery": all modes under the same open traffic, and one table.
func newGalleryCommand(p Process) *cobra.Command {
	s := newGallerySettings(p.Modes)
	command := &cobra.Command{
		Use:   "gallery",
		Short: "all strategies in turn under the same open traffic: what each is good for, and what it costs",
		Long: `The same open traffic for each strategy in turn, from a cold key: --rate requests a second, each due at its own time by --seed,
whatever became of the others. One table has what the backend had to do, what the requests felt, how old the values were, and
what it took of Redis. Latency counts from when a request was due; calls per TTL from the first fill on and without it.

Redis and the backend see the same requests at the same moments, so that the columns can be compared figure by figure.`,
		Example: "  cachelab gallery\n  cachelab gallery --report gallery.html\n  cachelab gallery --modes broken,fixed --rate 100 --each 1m --json -",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s.settings, func(ctx context.Context, terminal *report.Terminal) error {
				return runGallery(ctx, p, s, terminal, c.CommandPath())
			})
		},
	}
	s.register(command.Flags())
	return command
}

func newGallerySettings(table modes.Table) *liveSettings {
	s := &liveSettings{plan: lab.LivePlan{Scenario: modes.Gallery},
		settings: newSettings(defaults{workers: "50", rounds: "1", quiet: "true", fixed: []string{"rounds"}})}
	add(s.settings, "modes", "all", "which to show, with commas between them", &s.plan.Modes, modeList(table))
	add(s.settings, "each", "20s", "how long the traffic of each mode lasts", &s.plan.Each, duration(100*time.Millisecond))
	add(s.settings, "rate", "400", "requests a second, each due at its own time whatever became of the others", &s.plan.Rate, perSecond)
	s.addAhead()
	return s
}

func runGallery(ctx context.Context, p Process, s *liveSettings, terminal *report.Terminal, command string) (err error) {
	l, err := open(ctx, s.settings, terminal, s.warnings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	runs, early := l.Live(ctx, s.plan)
	err = early
	if len(runs) > 0 {
		terminal.Gallery(runs, s.Links)
		err = errors.Join(err, writeJSON(p, s.json, true, runs))
	}
	if s.report != "" {
		about := page.Page{Command: s.command(command), Settings: s.list(), Planned: len(s.plan.Modes), Version: s.Version}
		failed := s.writePage(about, plansOf(p.Modes, runs), runs, early)
		if failed == nil {
			terminal.Notice("report: " + s.report)
		}
		err = errors.Join(err, failed)
	}
	switch {
	case err != nil:
		return err
	case len(runs) == 0:
		return fmt.Errorf("no request was due in %v: want a higher --rate, or a longer --each", s.plan.Each)
	}
	return worse(s.verifyLast(ctx, terminal, runs), runs)
}

// plansOf are the plans of runs that were made.
func plansOf(table modes.Table, runs []facts.Run) (plans []lab.Plan) {
	for _, run := range runs {
		plans = append(plans, planOf(table, run))
	}
	return plans
}
