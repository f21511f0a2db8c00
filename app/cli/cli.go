// Package cli is the command line: commands, flags and their validation, and exit codes.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cachelab/app/facts"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
	"cachelab/telemetry/redact"
)

// Exit codes.
const (
	ExitOK      = 0
	ExitFailed  = 1 // the run failed or was interrupted
	ExitUsage   = 2 // bad usage; nothing was started
	ExitVerdict = 3 // the run did not do what its mode promises
)

// Process is what the program gets from its surroundings.
type Process struct {
	Args           []string // without the program's name
	Environ        []string
	LookupEnv      func(string) (string, bool)
	Stdout, Stderr *os.File
	Modes          modes.Table // a command for each; "fixed" must be among them
}

// Main runs the command line, with a command for each mode, until it is done or ctx ends, and returns the exit code.
func Main(ctx context.Context, p Process) int {
	root := newRoot(p)
	out := &checkedWriter{Writer: p.Stdout}
	root.SetOut(out)
	root.SetErr(p.Stderr)
	root.SetArgs(p.Args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.err
	}

	var verdict errVerdict
	var usage errUsage
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &verdict): // printed already, but for what came with it
		if err.Error() != verdict.Error() {
			fmt.Fprintf(p.Stderr, "cachelab: %v\n", err)
		}
		return ExitVerdict
	case errors.As(err, &usage):
		fmt.Fprintf(p.Stderr, "cachelab: %v\n(see %s --help)\n", err, command.CommandPath())
		return ExitUsage
	}
	fmt.Fprintf(p.Stderr, "cachelab: %v\n", err)
	return ExitFailed
}

// errUsage marks a fault of the command line.
type errUsage struct{ error }

func (e errUsage) Unwrap() error { return e.error }

// errVerdict says that a verdict was not ok.
type errVerdict struct{}

func (errVerdict) Error() string { return "the verdict is not ok" }

func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:     "cachelab",
		Version: version(),
		Short:   "Watch a cache stampede, and the fill lock that stops it",
		Long: `Many workers miss the same expired Redis key at the same moment. In naive cache-aside (broken) each of them calls the
slow backend. With a fill lock (fixed: SET NX PX) one of them fills, and the others wait and retry GET.

The invariant: one backend call per expiry cycle. Look for the line "backend calls".
Without a Redis on localhost:6379 an embedded one is used, so nothing needs to be installed.

Each flag has a variable: --backend-latency is CACHELAB_BACKEND_LATENCY.
Exit codes: 0 the run did what its mode promises (broken that shows a herd, too), 1 it failed or was
interrupted, 2 bad usage, 3 it did not do what its mode promises.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(root *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errUsage{fmt.Errorf("unknown command %q: want %s", redact.URL(args[0]), modes.Or(visible(root)))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [command]",
		Short: "what a command does, and its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			command, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return errUsage{fmt.Errorf("there is no command %q", shown(args))}
			}
			return command.Help()
		},
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		text, _, _ := strings.Cut(err.Error(), "=") // what follows may hold a password
		return errUsage{errors.New(text)}
	})
	const strategies, more = "strategies", "more"
	root.AddGroup(&cobra.Group{ID: strategies, Title: "The strategies, each under the same herd:"}, &cobra.Group{ID: more, Title: "More:"})
	for _, mode := range p.Modes {
		command := newRunCommand(p, usual(), mode.Name, mode.Short, mode.Long, lab.Plan{Mode: mode, Scenario: modes.Rounds})
		if mode.Traffic {
			s := newTrafficSettings(p.Modes, mode.Name, map[string]string{"rate": "400", "for": "20s"})
			command = newTrafficCommand(p, s, mode.Name, mode.Name, mode.Short, mode.Long)
		}
		command.GroupID = strategies
		root.AddCommand(command)
	}
	root.SetHelpCommandGroupID(more)
	for _, command := range []*cobra.Command{newLoadCommand(p), newCompareCommand(p), newLiveCommand(p), newGalleryCommand(p), newPageCommand(p), newDrillCommand(p), newVerifyCommand(p),
		newFoldCommand(p), newBackendCommand(p), newJoinCommand(p), newCompletionCommand(root)} {
		command.GroupID = more
		root.AddCommand(command)
	}
	root.AddCommand(newProcessCommand(p))
	return root
}

// visible are the names of the commands that are listed.
func visible(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// newRunCommand makes one run.
func newRunCommand(p Process, d defaults, name, short, long string, plan lab.Plan) *cobra.Command {
	s := newSettings(d)
	command := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  cachelab %s --workers 200 --rounds 3\n  cachelab %s --json - --redis redis://localhost:6379", name, name),
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s, func(ctx context.Context, terminal *report.Terminal) error {
				return runPlans(ctx, p, s, terminal, c.CommandPath(), []lab.Plan{plan})
			})
		},
	}
	s.register(command.Flags())
	return command
}

// noArguments refuses arguments.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errUsage{fmt.Errorf("%s takes no argument, got %q", c.Name(), shown(args))}
	}
	return nil
}

// shown are arguments as they are shown: a URL that went astray may hold a password.
func shown(args []string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		all[i] = redact.URL(arg)
	}
	return all
}

// runPlans makes the runs and reports them.
func runPlans(ctx context.Context, p Process, s *settings, terminal *report.Terminal, command string, plans []lab.Plan) (err error) {
	if s.rank > 0 {
		return s.join(ctx, p, terminal, s.RunID, false)
	}
	if len(plans) > 1 && (s.Joiners > 0 || s.RunID != "") {
		return errUsage{errors.New("--joiners and --run-id are for one run, and these are several: give them to each mode by itself")}
	}
	s.Capture = !s.Quiet || s.report != ""
	s.Waterfall = !s.Quiet && len(plans) == 1 // compare ends with all
	for _, plan := range plans {
		s.Modes = append(s.Modes, plan.Mode)
	}
	l, err := open(ctx, s, terminal, s.warnings(plans))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	var runs []facts.Run
	var checked error
	for _, plan := range plans {
		run, runErr := l.Run(ctx, plan)
		if err = runErr; run.Rounds > 0 {
			runs = append(runs, run)
		}
		if err != nil {
			break
		}
		checked = errors.Join(checked, s.verifyNow(ctx, terminal, run))
	}
	if err == nil && len(plans) > 1 {
		if !s.Quiet {
			terminal.Waterfalls(runs...)
		}
		terminal.Compare(runs...)
	}
	if len(runs) > 0 {
		err = errors.Join(err, writeJSON(p, s.json, len(plans) > 1, runs))
	}
	if s.report != "" {
		failed := writePage(s, command, plans, runs, err)
		if failed == nil {
			terminal.Notice("report: " + s.report)
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	return worse(checked, runs)
}

// verdicts is an error if one of them is not ok.
func verdicts(runs []facts.Run) error {
	for _, run := range runs {
		if !run.Verdict.OK {
			return errVerdict{}
		}
	}
	return nil
}

// built is the version that make found when it built the program: the tag or commit. Only the linker sets it.
var built string

// version is that of the build, else the module's, else that of the commit which Go found.
func version() string {
	if built != "" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}

// writeJSON writes the runs to a file, or to standard output for "-"; to nowhere for "".
func writeJSON(p Process, where string, array bool, runs []facts.Run) error {
	var what any = runs
	if !array {
		what = runs[0]
	}
	var text bytes.Buffer
	err := facts.WriteJSON(&text, what)
	switch {
	case err != nil:
	case where == "-":
		_, err = p.Stdout.Write(text.Bytes())
	case where != "":
		err = os.WriteFile(where, text.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("write the JSON: %w", err)
	}
	return nil
}
