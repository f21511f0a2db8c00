// Command cachelab shows a cache stampede on Redis, and the fill lock that stops it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"cachelab/app/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, cli.Process{
		Args:      os.Args[1:],
		Environ:   os.Environ(),
		LookupEnv: os.LookupEnv,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	})
	stop()
	os.Exit(code)
}
