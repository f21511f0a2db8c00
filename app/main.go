// Command cachelab shows a cache stampede on Redis, and the fill lock that stops it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"cachelab/app/cli"
	"cachelab/app/modes"
)

func main() {
	// A terminal that is closed ends a run as Ctrl-C does: in order, without its lock. Under nohup it does not.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	signal.Ignore(syscall.SIGPIPE) // a write that nobody reads fails, and that ends a run in order too
	context.AfterFunc(ctx, stop)   // a second Ctrl-C ends the program at once
	code := cli.Main(ctx, cli.Process{
		Args:      os.Args[1:],
		Environ:   os.Environ(),
		LookupEnv: os.LookupEnv,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Modes:     modes.All(),
	})
	stop()
	os.Exit(code)
}
