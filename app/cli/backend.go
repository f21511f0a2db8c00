package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/backend"
	"cachelab/app/lab"
	"cachelab/app/report"
	"cachelab/telemetry"
)

// addBackend adds what the backend is like.
func (s *settings) addBackend() {
	add(s, "backend-latency", "250ms", "time of one backend call", &s.Backend.Latency, duration(0))
	add(s, "backend-jitter", "0.1", "fraction by which that time varies: 0.1 or 10%", &s.Backend.Jitter, fraction)
	add(s, "backend-capacity", "10", "backend calls that run at once, the others queue; 0 = no limit",
		&s.Backend.Capacity, integer(0, maxWorkers))
	add(s, "backend-fail", "", "backend calls that fail: 1, 2-5, all, or 10%", &s.Backend.Failures, backend.ParseFailures)
	add(s, "seed", "1", "seed of the backend's jitter and of failures in percent", &s.Backend.Seed, seed)
}

// ofTheService are the flags that say what a backend is like: they are no flags of a run that calls another's.
var ofTheService = []string{"backend-latency", "backend-jitter", "backend-capacity", "backend-fail"}

// checkBackend refuses to describe a backend that is another process. Variables may be there for that one.
func (s *settings) checkBackend() error {
	if s.BackendURL == "" {
		return nil
	}
	var errs []error
	for _, one := range s.all {
		if slices.Contains(ofTheService, one.name) && one.from == "--"+one.name {
			errs = append(errs, fmt.Errorf("--%s: what the service at %s is like, it decides itself: give the flag to cachelab backend", one.name, s.BackendURL))
		}
	}
	return errors.Join(errs...)
}

// backendStart is how long a backend may take to listen that was started at the same moment.
const backendStart = 3 * time.Second

// askBackend finds out what the backend is like that is another process.
func (s *settings) askBackend(ctx context.Context) error {
	if s.BackendURL == "" {
		return nil
	}
	client, err := backend.Dial(ctx, backend.ClientConfig{URL: s.BackendURL})
	for began := time.Now(); errors.Is(err, backend.ErrNotArrived) && time.Since(began) < backendStart; {
		select {
		case <-time.After(200 * time.Millisecond):
			client, err = backend.Dial(ctx, backend.ClientConfig{URL: s.BackendURL})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	defer client.Close()
	about := client.About()
	b := &s.Backend
	b.Latency, b.Jitter, b.Capacity = about.Latency, about.Jitter, about.Capacity
	if b.Failures, err = backend.ParseFailures(about.Failures); err != nil {
		return fmt.Errorf("price service at %s: its failures %q: %w", s.BackendURL, about.Failures, err)
	}
	s.derive()
	return nil
}

func backendURL(text string) (string, error) {
	u, err := backend.ParseURL(text)
	if err != nil {
		return text, err
	}
	return u.String(), nil
}

func newBackendCommand(p Process) *cobra.Command {
	s, listen := &settings{}, ""
	add(s, "listen", "127.0.0.1:8042", "where to listen: host:port; port 0 is a free one", &listen, address)
	s.addBackend()
	add(s, "telemetry", "auto", "auto (traces where somebody listens), on, or off; OTEL_* variables are obeyed", &s.Telemetry, telemetry.ParseSwitch)
	command := &cobra.Command{
		Use:   "backend",
		Short: "the backend as a process of its own, for runs with --backend, until Ctrl-C",
		Long: `Serves the slow price service over HTTP, to any number of runs: they share its capacity, and each is counted on its own. In traces it
is the service price-service. Calls are GET /price?key=KEY&run=ID&ttl=3s; GET /runs/ID tells what was counted of a run, GET /healthz that it
serves. It listens where it is told, without a password: only for machines that you trust.

Ctrl-C and SIGTERM are its proper end: calls on their way are answered, spans are sent, and the exit code is 0.`,
		Example: "  cachelab backend --backend-latency 100ms\n  cachelab broken --backend http://127.0.0.1:8042",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s, func(ctx context.Context, terminal *report.Terminal) error {
				return lab.ServeBackend(ctx, s.Config, listen, terminal)
			})
		},
	}
	s.register(command.Flags())
	return command
}

// address is where to listen.
func address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if n, failed := strconv.Atoi(port); err != nil || failed != nil || n < 0 || n > 65535 {
		return text, errors.New("want host:port, like 127.0.0.1:8042")
	}
	return text, nil
}
