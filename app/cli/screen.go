package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"cachelab/app/lab"
	"cachelab/app/report"
	"cachelab/app/results"
)

// onScreen resolves the settings, and does what is to be done with a terminal where people read: with --json - that is
// not standard output. Its context also ends when the reader goes away (| head): in order, as with SIGTERM. It returns when
// all that was printed is written; what could not be is an error.
func onScreen(c *cobra.Command, p Process, s *settings, do func(context.Context, *report.Terminal) error) error {
	if err := s.resolve(p.LookupEnv); err != nil {
		return errUsage{err}
	}
	if err := s.askBackend(c.Context()); err != nil {
		return err
	}
	screen, name := p.Stdout, "standard output"
	if s.json == "-" {
		screen, name = p.Stderr, "standard error"
	}
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	terminal := report.NewTerminal(screen, p.Environ, p.Modes, func(err error) {
		if errors.Is(err, syscall.EPIPE) {
			cancel(fmt.Errorf("nobody reads %s any more", name))
		}
	})
	for _, text := range unknownVariables(c.Root(), p.Environ) {
		terminal.Warn(text)
	}
	s.LookupEnv, s.Console, s.Version, s.Told, s.Differs = p.LookupEnv, screen, version(), s.told(), s.differing
	err := s.keepResults(func() error { return do(ctx, terminal) })
	if failed := terminal.Close(); failed != nil {
		err = errors.Join(err, fmt.Errorf("print to %s: %w", name, failed))
	}
	return err
}

// keepResults does what is to be done, and keeps its results if they are wanted.
func (s *settings) keepResults(do func() error) (err error) {
	if s.results == "" {
		return do()
	}
	if s.Results, err = results.Create(s.results); err != nil {
		return err
	}
	s.Settings = s.kept()
	return errors.Join(do(), s.Results.Close())
}

// kept are the settings as the results keep them.
func (s *settings) kept() (all []results.Setting) {
	for _, one := range s.list() {
		all = append(all, results.Setting(one))
	}
	return all
}

// open opens the lab, after the warnings.
func open(ctx context.Context, s *settings, terminal *report.Terminal, warnings []string) (*lab.Lab, error) {
	for _, w := range warnings {
		terminal.Warn(w)
	}
	return lab.Open(ctx, s.Config, terminal)
}

// checkedWriter keeps the first error of a writer for those who print without looking.
type checkedWriter struct {
	io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	n, err := w.Writer.Write(text)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}
