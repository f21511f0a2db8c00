package cli

import (
	"cmp"
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
	"cachelab/app/report"
	"cachelab/telemetry/redact"
)

// newDrillCommand is "drill", with a command for each drill and one for all.
func newDrillCommand(p Process) *cobra.Command {
	command := &cobra.Command{
		Use:   "drill",
		Short: "a strategy, mostly fixed, with a fault that is injected on purpose, and what is expected of it",
		Long: `A drill is a run, mostly of fixed, in which something goes wrong on purpose. The verdict is ok when what is expected happens, and
nothing worse. See app/drill/README.md for what to look at.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errUsage{fmt.Errorf("unknown drill %q; the drills are:\n%s", redact.URL(args[0]), drillLines())}
			}
			return errUsage{fmt.Errorf("which drill? The drills are:\n%s", drillLines())}
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args has the last word
	}
	for _, d := range drill.All() {
		mode, err := p.Modes.Find(cmp.Or(d.Mode, theFix))
		one := newRunCommand(p, drillDefaults(d), d.Name, d.Short, d.Long, drillPlan(mode, d))
		if d.Traffic {
			one = newTrafficCommand(p, newDrillSettings(p.Modes, d), d.Mode, d.Name, d.Short, d.Long)
		}
		one.PreRunE = func(*cobra.Command, []string) error { return err }
		one.Example = fmt.Sprintf("  cachelab drill %s\n  cachelab drill %s --json - --redis redis://localhost:6379", d.Name, d.Name)
		command.AddCommand(one)
	}
	command.AddCommand(newAllDrillsCommand(p))
	return command
}

// drillPlan is a strategy with the faults of a drill, and the drill's own verdict.
func drillPlan(mode modes.Mode, d drill.Drill) lab.Plan {
	return lab.Plan{Mode: mode, Scenario: modes.Drill(d.Name), Drill: &d}
}

// newDrillSettings are the flags of a drill.
func newDrillSettings(table modes.Table, d drill.Drill) *liveSettings {
	if !d.Traffic {
		return &liveSettings{settings: newSettings(drillDefaults(d))}
	}
	s := newTrafficSettings(table, d.Mode, d.Settings)
	s.plan.Scenario, s.plan.Drill = modes.Drill(d.Name), &d
	for _, one := range s.all {
		one.fixed = one.fixed || one.name == "think" || one.name == "backend-fail"
	}
	return s
}

// drillLines is a line for each drill.
func drillLines() string {
	var lines strings.Builder
	for _, d := range drill.All() {
		fmt.Fprintf(&lines, "  %-16s %s\n", d.Name, d.Short)
	}
	fmt.Fprintf(&lines, "  %-16s %s", "all", "all of them, and one table")
	return lines.String()
}

func drillDefaults(d drill.Drill) defaults {
	usual := usual()
	usual.others = d.Settings
	usual.fixed = []string{"backend-fail", "backend", "processes", "joiners", "join-wait", "run-id", "rank"} // the drill decides what fails, in this process, and how long a call takes
	if !d.AnyRounds {
		usual.fixed = append(usual.fixed, "rounds")
	}
	return usual
}

// sharedByDrills are the flags of "drill all": those that change no drill.
var sharedByDrills = []string{"key", "seed", "redis", "redis-ca", "redis-cert", "redis-key", "redis-sni", "redis-password-file",
	"telemetry", "jaeger-url", "grafana-url", "json", "records", "results", "verify", "jaeger-api", "prometheus-url", "quiet"}

func newAllDrillsCommand(p Process) *cobra.Command {
	shared := newSettings(defaults{workers: "50", rounds: "1", quiet: "true"})
	for _, one := range shared.all {
		one.fixed = !slices.Contains(sharedByDrills, one.name)
	}
	command := &cobra.Command{
		Use:   "all",
		Short: "all drills one after the other, and one table",
		Long:  "Runs each drill with its own settings, and prints one table. It takes about three minutes.",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, shared, func(ctx context.Context, terminal *report.Terminal) error {
				return runAllDrills(ctx, p, shared, terminal)
			})
		},
	}
	shared.register(command.Flags())
	return command
}

// runAllDrills makes a run of each drill. One that fails does not keep the others from theirs.
func runAllDrills(ctx context.Context, p Process, shared *settings, terminal *report.Terminal) error {
	var runs []facts.Run
	var errs []error
	var checked error
	for _, d := range drill.All() {
		mode, err := p.Modes.Find(cmp.Or(d.Mode, theFix))
		if err != nil {
			return err
		}
		s, err := settingsOf(p.Modes, d, shared)
		if err != nil {
			return err
		}
		var plans []lab.Plan
		if !d.Traffic {
			plans = append(plans, drillPlan(mode, d))
		}
		made, err := s.makeRuns(ctx, terminal, plans)
		if errors.Is(err, lab.ErrNoServers) {
			terminal.Warn(fmt.Sprintf("drill %s is left out: %v", d.Name, err))
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("drill %s: %w", d.Name, err))
		}
		for _, run := range made {
			runs = append(runs, run)
			checked = errors.Join(checked, shared.verifyNow(ctx, terminal, run))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(runs) > 0 {
		terminal.Drills(runs)
		errs = append(errs, writeJSON(p, shared.json, true, runs))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return worse(checked, runs)
}

// settingsOf are the drill's settings with the shared ones over them.
func settingsOf(table modes.Table, d drill.Drill, shared *settings) (*liveSettings, error) {
	s := newDrillSettings(table, d)
	for _, one := range s.all {
		for _, other := range shared.all {
			if one.name == other.name && !other.fixed {
				one.text, one.from = other.text, other.from
			}
		}
	}
	err := s.resolve(func(string) (string, bool) { return "", false })
	s.LookupEnv, s.Console, s.Version = shared.LookupEnv, shared.Console, shared.Version
	s.Results, s.Settings, s.Told = shared.Results, s.kept(), s.told()
	return s, err
}

// makeRuns makes the runs of the plans, one after the other; without plans, those of the traffic. The error says why it ended
// early; the runs are what there is.
func (s *liveSettings) makeRuns(ctx context.Context, terminal *report.Terminal, plans []lab.Plan) (runs []facts.Run, err error) {
	l, err := lab.Open(ctx, s.Config, terminal)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if len(plans) == 0 {
		return l.Live(ctx, s.plan)
	}
	for _, plan := range plans {
		run, err := l.Run(ctx, plan)
		if run.Rounds > 0 {
			runs = append(runs, run)
		}
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}
