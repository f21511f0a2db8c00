package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"cachelab/app/fleet"
	"cachelab/app/fleet/children"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// newProcessCommand is a process of a run that another one has started.
func newProcessCommand(p Process) *cobra.Command {
	return &cobra.Command{
		Use:    lab.ProcessCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			line, welcomed := children.NewLine(os.Stdin, p.Stdout), false
			err := lab.TakePart(c.Context(), line, lab.Who{Hello: hello(nil), Modes: p.Modes, Terminal: report.PlainTerminal(io.Discard), Quiet: true,
				Configure: func(w fleet.Welcome) (lab.Config, error) {
					welcomed = true
					return configure(p, w, "")
				}})
			if welcomed && errors.Is(err, fleet.ErrEnded) {
				return nil // the one that started it has gone, or says itself what went wrong
			}
			return err
		},
	}
}

// ofCoordinator are the settings that are of no use to the other processes of a run: those that say what is shown, and kept.
var ofCoordinator = []string{"processes", "joiners", "join-wait", "run-id", "rank", "mode", "modes", "each", "for", "jaeger-url", "grafana-url", "jaeger-api", "prometheus-url", "json", "records", "results", "verify", "report", "quiet"}

// told are the settings as other processes are told them. Those that are computed have their values.
func (s *settings) told() (all []fleet.Setting) {
	for _, one := range s.all {
		if slices.Contains(ofCoordinator, one.name) {
			continue
		}
		value := one.text
		switch one.name {
		case "wait-timeout":
			value = s.WaitTimeout.String()
		case "grace":
			value = s.Ahead.Grace.String()
		}
		all = append(all, fleet.Setting{Name: one.name, Value: value})
	}
	return all
}

// configure makes the config of a process that takes part in a run, out of what its coordinator told. The backend is this
// process's own, if it was given one.
func configure(p Process, w fleet.Welcome, backendURL string) (lab.Config, error) {
	s := newLiveSettings(modes.Table(p.Modes))
	for _, told := range w.Settings {
		for _, one := range s.all {
			if one.name == told.Name {
				one.text, one.from = told.Value, "the coordinator's --"+told.Name
			}
		}
	}
	if own := s.find("backend"); backendURL != "" {
		own.text, own.from = backendURL, "--backend"
	}
	err := s.resolve(func(string) (string, bool) { return "", false })
	if err == nil {
		err = s.askBackend(context.Background()) // which takes a moment at most
	}
	s.LookupEnv, s.Console, s.Version = p.LookupEnv, p.Stderr, version()
	return s.Config, err
}
