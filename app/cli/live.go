package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// liveSettings are the flags of live.
type liveSettings struct {
	*settings
	plan lab.LivePlan
}

func newLiveSettings(table modes.Table) *liveSettings {
	// No rounds: the key expires by itself, as often as it does. No report: it is of one round.
	s := &liveSettings{plan: lab.LivePlan{Scenario: modes.Live}, settings: newSettings(defaults{workers: "20", rounds: "1", quiet: "true", fixed: []string{"rounds", "report"}})}
	add(s.settings, "mode", theSeed, "which mode, or which in turn, with commas between them: "+strings.Join(table.Names(), ", "), &s.plan.Modes, modeList(table))
	add(s.settings, "each", "30s", "length of a phase, after which the mode changes", &s.plan.Each, duration(100*time.Millisecond))
	add(s.settings, "for", "", "length of the run (default: until Ctrl-C)", &s.plan.For, optional(duration(100*time.Millisecond)))
	add(s.settings, "think", "300ms", "a worker's pause between two requests; each is spread by half to both sides", &s.plan.Think,
		duration(10*time.Millisecond))
	add(s.settings, "rate", "", "requests a second, each due at its own time whatever became of the others, instead of --think", &s.plan.Rate,
		optional(perSecond))
	s.addAhead()
	return s
}

// addAhead adds the flags of the strategies that refresh before the expiry.
func (s *liveSettings) addAhead() {
	add(s.settings, "beta", "1", "of early: above 1 values are refreshed earlier, below 1 later", &s.Ahead.Beta, factor)
	add(s.settings, "early-lock", "true", "of early: refresh under the fill lock; false is the plain form", &s.Ahead.EarlyLock, boolean).boolean = true
	add(s.settings, "grace", "", "of stale: how long values are kept beyond their TTL (default: the longer of TTL, and lock TTL + a fill)",
		&s.Ahead.Grace, optional(duration(time.Millisecond)))
}

func (s *liveSettings) warnings() []string {
	var plans []lab.Plan
	for _, mode := range s.plan.Modes {
		plans = append(plans, lab.Plan{Mode: mode})
	}
	all := s.settings.warnings(plans)
	if len(s.plan.Modes) > 1 && s.plan.Each <= s.TTL {
		all = append(all, fmt.Sprintf("a phase (%v) is not longer than the TTL (%v): the key may not expire in it", s.plan.Each, s.TTL))
	}
	return all
}

func newLiveCommand(p Process) *cobra.Command {
	s := newLiveSettings(p.Modes)
	command := &cobra.Command{
		Use:   "live",
		Short: "broken and fixed in turn, on a key that expires under traffic, until Ctrl-C",
		Long: `The workers read on their own, with some think time, so the key expires under traffic, as in real life: who misses
before the fill is there makes the herd. Every 30 s the mode changes from broken to fixed, or back. Watch the dashboard.

Ctrl-C, or the end of --for, is its proper end: the requests on their way are answered, and each mode gets its summary
and its verdict. Exit code 0 if they are ok.

Who asks waits for the answer before the next request (a closed loop): a herd slows its own accusers, so the modes are compared
by rates, shares and quantiles only, and a mode that is slow looks better than it is. With --rate nobody waits (open traffic): each
request has its due time, by --seed, and its latency counts from that; beyond 10,000 on their way they are not sent, and counted.`,
		Example: "  cachelab live\n  cachelab live --mode fixed --workers 100 --think 100ms\n  cachelab live --each 10s --for 1m --json live.json\n  cachelab live --mode broken --rate 400 --for 20s",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s.settings, func(ctx context.Context, terminal *report.Terminal) error {
				return runLive(ctx, p, s, terminal, true)
			})
		},
	}
	s.register(command.Flags())
	return command
}

// newTrafficSettings are those of live in one mode, with these defaults.
func newTrafficSettings(table modes.Table, mode string, others map[string]string) *liveSettings {
	s := newLiveSettings(table)
	for _, one := range s.all {
		if value, ok := others[one.name]; ok {
			one.text = value
		}
		if one.name == "mode" {
			one.text = mode
		}
		one.fixed = one.fixed || one.name == "mode" || one.name == "each"
	}
	return s
}

// newTrafficCommand is live in one mode, with a rate and an end: for a promise that needs traffic.
func newTrafficCommand(p Process, s *liveSettings, mode, name, short, long string) *cobra.Command {
	command := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  cachelab %s --rate 100 --for 1m\n  cachelab %[1]s --json - --redis redis://localhost:6379", name),
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s.settings, func(ctx context.Context, terminal *report.Terminal) error {
				return runLive(ctx, p, s, terminal, false)
			})
		},
	}
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if strings.Contains(err.Error(), "--rounds") {
			err = fmt.Errorf("the promise of %s needs traffic, not rounds: give --rate and --for", mode)
		}
		return c.Root().FlagErrorFunc()(c, err)
	})
	s.register(command.Flags())
	return command
}

// runLive makes the runs and reports them; as JSON in an array, or the only one.
func runLive(ctx context.Context, p Process, s *liveSettings, terminal *report.Terminal, array bool) (err error) {
	if s.rank > 0 {
		return s.join(ctx, p, terminal, s.RunID, false)
	}
	l, err := open(ctx, s.settings, terminal, s.warnings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	runs, err := l.Live(ctx, s.plan)
	if err != nil {
		return err
	}
	if len(runs) == 0 && !array {
		return errors.New("nobody asked before the end: give a longer --for, or a higher --rate")
	}
	if len(runs) > 1 {
		terminal.Compare(runs...)
	}
	if err := writeJSON(p, s.json, array, runs); err != nil {
		return err
	}
	return worse(s.verifyLast(ctx, terminal, runs), runs)
}
