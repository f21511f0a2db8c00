package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/fleet"
	"cachelab/app/fleet/meeting"
	"cachelab/app/lab"
	"cachelab/app/report"
)

// addFleet adds the flags of a run of several processes.
func (s *settings) addFleet() {
	add(s, "processes", "0", "processes to start, each with so many workers; 0 = the workers are this one's", &s.Processes, integer(0, maxProcesses))
	add(s, "joiners", "0", "processes from elsewhere to wait for, each with so many workers: cachelab join", &s.Joiners, integer(0, meeting.MaxJoiners))
	add(s, "join-wait", "1m", "how long joiners are waited for, and how long a joiner waits for its run", &s.JoinWait, duration(time.Second))
	add(s, "run-id", "", "the run's id, for joiners to know it; choose a new one for each run (default: scenario, time and some letters)", &s.RunID, optional(runID))
	add(s, "rank", "0", "of several that are started alike, as by an Indexed Job: 0 coordinates, and the others join its run", &s.rank, integer(0, meeting.MaxJoiners))
}

// runID reads the id of a run, which becomes part of keys, labels and links.
func runID(text string) (string, error) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if text == "" || len(text) > 64 || strings.Trim(text, allowed) != "" || strings.ContainsAny(text[:1], "-_.") {
		return text, errors.New("want 1 to 64 letters, digits, hyphens, underscores and dots, a letter or digit first")
	}
	return text, nil
}

// checkFleet finds what does not go together.
func (s *settings) checkFleet() (faults []error) {
	wrong := func(name, format string, args ...any) {
		faults = append(faults, fault{name, fmt.Errorf(format, args...)})
	}
	if others := s.Processes + s.Joiners; others > 0 && s.Workers*others > maxWorkers { // else it is told already
		wrong("processes", "--workers %d in each of %d processes: want at most %d workers in all", s.Workers, others, maxWorkers)
	}
	if s.Joiners > 0 && s.Redis.Embedded {
		wrong("joiners", "--joiners need a Redis that they can reach: give --redis a URL, not embedded")
	}
	if s.Joiners > 0 && s.BackendURL == "" {
		wrong("joiners", "--joiners need a backend that all can reach: start one with cachelab backend --listen HOST:8042, and give --backend http://HOST:8042")
	}
	if s.rank > 0 && s.RunID == "" {
		wrong("rank", "--rank needs --run-id, the same for all, so that they find each other")
	}
	if s.rank > s.Joiners {
		wrong("rank", "--rank %d is beyond the %d --joiners", s.rank, s.Joiners)
	}
	return faults
}

// newJoinCommand takes part in a run that is coordinated elsewhere.
func newJoinCommand(p Process) *cobra.Command {
	s := newLiveSettings(p.Modes)
	stay := false
	for _, one := range s.all {
		one.fixed = slices.Contains(ofCoordinator, one.name) && one.name != "quiet" && one.name != "join-wait"
		if one.name == "quiet" {
			one.text, one.usage = "false", "no line for each round"
		}
	}
	command := &cobra.Command{
		Use:   "join [RUN]",
		Short: "take part in a run that is coordinated elsewhere, on another machine",
		Long: `Takes part in a run as one more process, whose workers ask at the same moments as all others. The coordinator is told how many
to wait for, and both must reach the same Redis, where they meet:

  there:  cachelab fixed --joiners 2 --run-id RUN --redis redis://host:6379 --backend http://host:8042
  here:   cachelab join RUN --redis redis://host:6379

The settings are the coordinator's. What is given here as well, by flag or variable, must be the same, or the joiner is refused; only
--redis and its like, --backend, --quiet and --join-wait are this process's own. Without RUN it is the run that is open.

Exit code 0 if it took part to the end, whatever the verdict, which is the coordinator's; 1 if not.`,
		Example: "  cachelab join herd-1 --redis redis://10.0.0.5:6379\n  cachelab join --stay --redis redis://10.0.0.5:6379",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errUsage{fmt.Errorf("join takes the id of a run, got %q", shown(args))}
			}
			if len(args) == 1 {
				if _, err := runID(args[0]); err != nil {
					return errUsage{fmt.Errorf("the run's id %q: %w", shown(args)[0], err)}
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s.RunID = strings.Join(args, "")
			return onScreen(c, p, s.settings, func(ctx context.Context, terminal *report.Terminal) error {
				return s.join(ctx, p, terminal, strings.Join(args, ""), stay)
			})
		},
	}
	s.register(command.Flags())
	command.Flags().BoolVar(&stay, "stay", false, "join one run after the other, until Ctrl-C")
	return command
}

// join takes part in a run; in the one that is open, if id is "".
func (s *settings) join(ctx context.Context, p Process, terminal *report.Terminal, id string, stay bool) error {
	if s.Redis.Embedded {
		return errUsage{errors.New("a joiner needs the Redis of the run: give --redis its URL, not embedded")}
	}
	joining := lab.Joining{Run: id, Redis: s.Redis, Wait: s.JoinWait, Stay: stay}
	return lab.Join(ctx, joining, lab.Who{
		Hello: hello(s.given()), Modes: p.Modes, Terminal: terminal, Quiet: s.Quiet,
		Configure: func(w fleet.Welcome) (lab.Config, error) {
			config, err := configure(p, w, s.BackendURL)
			config.Redis = s.Redis
			return config, err
		},
	})
}

// ofProcess are the settings that each process has for itself.
var ofProcess = []string{"redis", "redis-ca", "redis-cert", "redis-key", "redis-sni", "redis-password-file", "backend"}

// given are the settings of the run that the user of this process gave.
func (s *settings) given() (all []fleet.Setting) {
	for _, one := range s.all {
		if one.from != "default" && !one.fixed && !slices.Contains(ofCoordinator, one.name) && !slices.Contains(ofProcess, one.name) {
			all = append(all, fleet.Setting{Name: one.name, Value: one.text})
		}
	}
	return all
}

// differing says which settings of another process's user are not those of the run; "" if there are none.
func (s *settings) differing(given []fleet.Setting) string {
	var all []string
	told := s.told()
	for _, theirs := range given {
		at := slices.IndexFunc(told, func(ours fleet.Setting) bool { return ours.Name == theirs.Name })
		switch {
		case at < 0:
			all = append(all, fmt.Sprintf("--%s %.60q, which this run has not", theirs.Name, theirs.Value))
		case !s.find(theirs.Name).same(theirs.Value, told[at].Value):
			all = append(all, fmt.Sprintf("--%s %.60q, which is %q in the run", theirs.Name, theirs.Value, told[at].Value))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "its user gave " + strings.Join(all, ", and ") + ": leave it out there, or give the same"
}

// hello is this process, whose user gave these settings.
func hello(given []fleet.Setting) fleet.Hello {
	host, _ := os.Hostname() // for people
	return fleet.Hello{Version: version(), PID: os.Getpid(), Host: host, Settings: given}
}
