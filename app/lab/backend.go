package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"syscall"
	"time"

	"cachelab/app/backend"
	"cachelab/app/observe"
	"cachelab/app/report"
	"cachelab/telemetry"
)

// lastCalls is how long calls on their way may still take when the backend ends.
const lastCalls = 5 * time.Second

// ServeBackend serves the backend to the runs of other processes, until ctx ends: that is no error.
func ServeBackend(ctx context.Context, config Config, listen string, terminal *report.Terminal) error {
	telemetry.DiscardLog()
	t, err := telemetry.Start(ctx, telemetry.Options{Switch: config.Telemetry, Instance: rand.Text(), Version: config.Version,
		Lookup: config.LookupEnv, Console: config.Console, Spans: config.Spans, ByRun: true, WithoutMetrics: true})
	if err != nil {
		return err
	}
	defer func() {
		if failed := t.Shutdown(context.WithoutCancel(ctx)); failed != nil {
			terminal.Warn(failed.Error())
		}
	}()
	runs := backend.NewRuns(config.Backend, func(run string) backend.Probe { return observe.Service(t, run, true) })
	about := backend.HandlerConfig{Version: config.Version, Trace: t.Served}
	if t.Traceable() {
		about.Spans = func(ctx context.Context, run string) backend.SpanCounts {
			return backend.SpanCounts(t.SpansOf(ctx, run))
		}
	}
	server, err := backend.Listen(listen, backend.NewHandler(runs, about))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: choose another --listen", err)
	}
	if err != nil {
		return err
	}
	terminal.Notice(t.Notice)
	terminal.Notice(fmt.Sprintf("price service at %s: %s; give runs --backend %[1]s", server.URL, backendText(config.Backend)))
	if err := server.Wait(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCalls)
	defer cancel()
	return server.Close(limited)
}

// backendText says what a backend is like.
func backendText(b backend.Config) string {
	text := fmt.Sprintf("%v +-%.4g%%", b.Latency, b.Jitter*100)
	if b.Capacity > 0 {
		text += fmt.Sprintf(", %d at once", b.Capacity)
	}
	if failures := b.Failures.String(); failures != "" {
		text += ", fails: " + failures
	}
	return text
}
