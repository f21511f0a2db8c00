package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/drill"
	"cachelab/app/lab"
	"cachelab/app/page"
	"cachelab/app/report"
	"cachelab/app/web"
)

// What a visitor of the page may set: those that are seen at once, and the others. All else is the page's own, or does not
// exist there: nothing is written to disk, and nobody is asked, that the command line does not name.
var (
	oftenSet  = []string{"workers", "processes", "rounds", "rate", "each", "for", "backend-latency", "backend-capacity", "ttl"}
	seldomSet = []string{"ttl-jitter", "lock-ttl", "wait-timeout", "backend-jitter", "backend-fail", "seed", "beta", "early-lock", "grace"}
	notOfPage = []string{"json", "results", "verify", "jaeger-api", "prometheus-url", "report", "quiet", "joiners", "join-wait", "run-id", "rank"}
)

// settable reports whether a visitor may set it, where the command has it.
func settable(name string) bool {
	return slices.Contains(oftenSet, name) || slices.Contains(seldomSet, name)
}

// Kinds of show that are no drill.
const (
	showRounds  = "rounds"
	showTraffic = "traffic"
)

// mostStrategies are as many as can be looked at side by side.
const mostStrategies = 4

// newPageCommand is "page": the lab in a browser.
func newPageCommand(p Process) *cobra.Command {
	s, listen := newPageSettings()
	command := &cobra.Command{
		Use:   "page",
		Short: "the lab in a browser: press the button, watch the herd",
		Long: `Serves a page on which the runs can be chosen, started, watched and stopped, one at a time; who else opens it sees the same
run. It opens no browser by itself, and writes nothing to disk unless --records says so. Ctrl-C is its proper end: a run that
goes on ends in order.

Only this machine can reach it unless --listen says otherwise: whoever can may start runs. No other site may.`,
		Example: "  cachelab page\n  cachelab page --listen 127.0.0.1:0 --redis redis://localhost:6379",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s, func(ctx context.Context, terminal *report.Terminal) error {
				return servePage(ctx, p, s, terminal, *listen)
			})
		},
	}
	s.register(command.Flags())
	return command
}

// newPageSettings are the flags of page: those of a run that a visitor may not set.
func newPageSettings() (s *settings, listen *string) {
	s, listen = newSettings(usual()), new(string)
	for _, one := range s.all {
		one.fixed = settable(one.name) || slices.Contains(notOfPage, one.name)
	}
	s.find("redis").text = "embedded"
	s.find("records").text = ""
	add(s, "listen", "127.0.0.1:8041", "address of the page; port 0 chooses a free one", listen, listenAddress)
	return s, listen
}

func listenAddress(s string) (string, error) {
	if _, err := net.ResolveTCPAddr("tcp", s); err != nil || !strings.Contains(s, ":") {
		return s, errors.New("want an address with a port, like 127.0.0.1:8041")
	}
	return s, nil
}

func servePage(ctx context.Context, p Process, s *settings, terminal *report.Terminal, listen string) error {
	shows := shows{Process: p, page: s, terminal: terminal}
	form, err := shows.form()
	if err != nil {
		return errUsage{err}
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve the page: %w; choose another address with --listen, 127.0.0.1:0 for a free port", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		terminal.Warn(fmt.Sprintf("whoever can reach %s may start runs", at))
	}
	terminal.Say(fmt.Sprintf("the lab is at http://%s/ until Ctrl-C", listener.Addr()))
	return web.New(form, shows.plan).Serve(ctx, listener)
}

// shows makes what visitors choose out of the commands of the same names.
type shows struct {
	Process
	page     *settings
	terminal *report.Terminal
}

// show is a command with its settings.
type show struct {
	*liveSettings
	command string     // without its flags
	plans   []lab.Plan // in rounds; none for traffic
	drill   *drill.Drill
}

// form is what can be chosen. The error is a fault of a variable.
func (w shows) form() (form web.Form, err error) {
	form = web.Form{Most: mostStrategies, Version: w.page.Version}
	for _, m := range w.Modes {
		form.Strategies = append(form.Strategies, web.Strategy{Name: m.Name, Short: m.Short, Color: m.Color, Traffic: m.Traffic})
	}
	kind := func(name, short, strategy string) {
		one, faults := w.show(web.Choice{Kind: name, Strategies: []string{theFix}})
		if len(faults) > 0 {
			err = errors.New(faults[0].Text)
			return
		}
		form.Kinds = append(form.Kinds, web.Kind{Name: name, Short: short, Strategy: strategy, Fields: one.fields()})
	}
	kind(showRounds, "all workers ask at the same moment, again at each expiry", "")
	kind(showTraffic, "requests come on their own, so many a second", "")
	for _, d := range drill.All() {
		kind(d.Name, d.Short, cmp.Or(d.Mode, theFix))
	}
	return form, err
}

// fields are what a visitor may set.
func (s *show) fields() (fields []web.Field) {
	for _, name := range slices.Concat(oftenSet, seldomSet) {
		if one := s.find(name); one != nil && !one.fixed {
			// In the words with which anything else is refused.
			want := one.parse("?").Error()
			fields = append(fields, web.Field{Name: name, Usage: one.usage, Value: one.text, Want: strings.TrimPrefix(want, "want "),
				Boolean: one.boolean, Seldom: slices.Contains(seldomSet, name)})
		}
	}
	return fields
}

// show is the command that does what was chosen, with its settings resolved; or all that is wrong with the choice.
func (w shows) show(c web.Choice) (s *show, faults []web.Fault) {
	s, err := w.command(c)
	if err != nil {
		return nil, []web.Fault{{Field: "kind", Text: err.Error()}}
	}
	if n := len(c.Strategies); s.drill == nil && (n == 0 || n > mostStrategies) {
		return nil, []web.Fault{{Field: "strategies", Text: fmt.Sprintf("want 1 to %d strategies", mostStrategies)}}
	}
	for name, text := range c.Settings {
		switch one := s.find(name); {
		case one == nil || one.fixed || !settable(name):
			faults = append(faults, web.Fault{Field: name, Text: "there is no such setting here"})
		case text != one.text:
			_ = one.Set(text)
		}
	}
	for _, one := range s.all {
		if settable(one.name) || one.from != "default" { // the visitor's
			continue
		}
		shared := w.page.find(one.name)
		if shared == nil || shared.fixed {
			one.fixed = true
			continue
		}
		if one.text != shared.text && one.name != "records" { // which has no place in the command
			one.from = cmp.Or(strings.TrimPrefix(shared.from, "default"), "--"+one.name)
		}
		one.text = shared.text
	}
	return s, append(faults, faultsOf(s.resolve(w.LookupEnv))...)
}

// faultsOf are the faults of settings, by their names.
func faultsOf(err error) (faults []web.Fault) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			faults = append(faults, faultsOf(one)...)
		}
		return faults
	}
	if err == nil {
		return nil
	}
	one := web.Fault{Text: err.Error()}
	if f := (fault{}); errors.As(err, &f) {
		one.Field = strings.Replace(f.setting, "modes", "strategies", 1)
	}
	return []web.Fault{one}
}

// command is the command that does what was chosen, its settings not yet read.
func (w shows) command(c web.Choice) (*show, error) {
	const program = "cachelab "
	list := strings.Join(c.Strategies, ",")
	switch c.Kind {
	case showRounds:
		s := &show{liveSettings: &liveSettings{}, command: program + "compare"}
		s.settings = newCompareSettings(w.Modes, &s.plan.Modes)
		if len(c.Strategies) > 1 {
			return s, s.find("modes").Set(list)
		}
		// The command has the mode's name: it is no flag.
		mode := s.find("modes")
		s.command, mode.text, mode.from, mode.fixed = program+list, list, "strategies", true
		return s, nil
	case showTraffic:
		s := &show{liveSettings: newGallerySettings(w.Modes), command: program + "gallery"}
		return s, s.find("modes").Set(list)
	}
	for _, d := range drill.All() {
		if d.Name == c.Kind {
			return &show{liveSettings: newDrillSettings(w.Modes, d), command: program + "drill " + d.Name, drill: &d}, nil
		}
	}
	return nil, fmt.Errorf("there is no %q", c.Kind)
}

// plan makes a plan of a choice, or says all that is wrong with it.
func (w shows) plan(c web.Choice) (web.Plan, []web.Fault) {
	s, faults := w.show(c)
	if len(faults) > 0 {
		return web.Plan{}, faults
	}
	var planned []lab.Plan // all, those of traffic too
	switch {
	case s.drill != nil:
		mode, err := w.Modes.Find(cmp.Or(s.drill.Mode, theFix))
		if err != nil {
			return web.Plan{}, faultsOf(err)
		}
		planned = []lab.Plan{drillPlan(mode, *s.drill)}
	default:
		planned = inRounds(s.plan.Modes)
	}
	traffic := c.Kind == showTraffic || s.drill != nil && s.drill.Traffic
	if !traffic {
		s.plans = planned
	}
	plan := web.Plan{Command: s.settings.command(s.command), Warnings: s.settings.warnings(planned), Traffic: traffic, Workers: s.Workers, Processes: s.Processes, Rounds: s.Rounds,
		Capacity: s.Backend.Capacity, TTL: s.TTL, LockTTL: s.LockTTL, Each: cmp.Or(s.plan.For, s.plan.Each)}
	for _, one := range planned {
		about := one.Mode.Short
		if s.drill != nil {
			about = s.drill.Short
		}
		plan.Runs = append(plan.Runs, web.Planned{Mode: one.Mode.Name, Color: one.Mode.Color, About: about, Locks: one.Mode.Locks, Grace: one.Mode.Grace})
	}
	plan.Run = func(ctx context.Context, watch func(mode string) *web.View) page.Page {
		return w.run(ctx, s, plan.Command, planned, watch)
	}
	return plan, nil
}

// run makes the runs. The terminal is told of them as if they were made there.
func (w shows) run(ctx context.Context, s *show, command string, planned []lab.Plan, watch func(mode string) *web.View) page.Page {
	s.LookupEnv, s.Console, s.Version, s.Told = w.LookupEnv, w.page.Console, w.page.Version, s.told()
	s.Quiet, s.Capture = true, true
	for _, plan := range planned {
		s.Modes = append(s.Modes, plan.Mode)
	}
	s.Watch = func(mode string) lab.Watcher { return watch(mode) }
	runs, early := s.makeRuns(ctx, w.terminal, s.plans)
	if early != nil {
		w.terminal.Warn("ended early: " + early.Error())
	}
	var made []lab.Plan
	for _, run := range runs {
		made = append(made, planned[slices.IndexFunc(planned, func(plan lab.Plan) bool { return plan.Mode.Name == run.Mode })])
	}
	return s.page(page.Page{Command: command, Settings: s.list(), Planned: len(planned), Version: s.Version, Made: time.Now()}, made, runs, early)
}
