// Command peers puts the lab's strategies beside the libraries that a Go programmer would pick, under the same herd, in front of the same
// backend, on the same Redis: what an expiry costs with each, what happens when the process dies that fills, and when the
// backend fails.
//
//	make peers                                                      # all, about 25 minutes
//	make peers ARGS='--shape 1x50 --repeats 1 --peers woken,rueidisaside'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cachelab/app/redisserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == "work" {
		err = work(ctx, os.Stdin, os.Stdout)
	} else {
		err = execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch wrong := usage(""); {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, &wrong):
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// usage is what is wrong with the command line.
type usage string

func (u usage) Error() string { return string(u) }

// settings are the command line.
type settings struct {
	plan
	redis string // "" for an own one
	json  string
	plot  string
	quiet bool
}

func parse(args []string, help io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	names := flags.String("peers", strings.Join(allNames(), ","), "which of them")
	shapes := flags.String("shape", "1x50,1x500,8x62", "processes x workers of the herds")
	parts := flags.String("parts", strings.Join(allParts(), ","), "what to measure")
	flags.IntVar(&s.repeats, "repeats", 5, "how often each herd is measured")
	flags.IntVar(&s.rounds, "expiries", 10, "how often the key expires in each repeat")
	flags.DurationVar(&s.fill, "fill", 250*time.Millisecond, "how long a backend call takes")
	flags.StringVar(&s.redis, "redis", "", "a `URL`; the server is used by nobody else meanwhile (default: a redis-server of its own)")
	flags.StringVar(&s.json, "json", "", "a `file` for the results as JSON")
	flags.StringVar(&s.plot, "plot", "", "a `file` for the plot: .svg or .png")
	flags.BoolVar(&s.quiet, "quiet", false, "no progress")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(help)
		flags.Usage()
		return s, err
	case err != nil:
		return s, usage(err.Error())
	case flags.NArg() > 0:
		return s, usage(fmt.Sprintf("%q is no flag", flags.Arg(0)))
	case s.repeats < 1 || s.rounds < 1:
		return s, usage("--repeats and --expiries: want at least 1")
	case s.fill < 10*time.Millisecond || s.fill > 10*time.Second:
		return s, usage("--fill: want 10ms to 10s")
	case s.plot != "" && !strings.HasSuffix(s.plot, ".svg") && !strings.HasSuffix(s.plot, ".png"):
		return s, usage("--plot: want a file.svg or a file.png")
	}
	if s.peers, err = named(strings.Split(*names, ",")); err != nil {
		return s, usage("--peers: " + err.Error())
	}
	for text := range strings.SplitSeq(*shapes, ",") {
		shape, err := parseShape(text)
		if err != nil {
			return s, usage("--shape: " + err.Error())
		}
		s.shapes = append(s.shapes, shape)
	}
	for part := range strings.SplitSeq(*parts, ",") {
		if !slices.Contains(allParts(), part) {
			return s, usage(fmt.Sprintf("--parts: there is no part %q: want some of %s", part, strings.Join(allParts(), ",")))
		}
		s.parts = append(s.parts, part)
	}
	return s, nil
}

// parseShape reads processes x workers.
func parseShape(text string) (shape, error) {
	before, after, _ := strings.Cut(text, "x")
	processes, err := strconv.Atoi(before)
	workers, err2 := strconv.Atoi(after)
	if err != nil || err2 != nil || processes < 1 || processes > 64 || workers < 1 || workers > 10_000 {
		return shape{}, fmt.Errorf("%q: want processes x workers, like 8x62", text)
	}
	return shape{processes, workers}, nil
}

func execute(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	if s.redis == "" {
		server, err := redisserver.New(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		s.redis = "redis://" + server.Addr()
	}
	k, err := newKeeper(s.redis)
	if err != nil {
		return usage("--redis: " + err.Error())
	}
	defer k.client.Close()
	m := &measurer{plan: s.plan, redis: s.redis, keeper: k}
	r, err := m.run(ctx, func(step string) {
		if !s.quiet {
			fmt.Fprintln(progress, time.Now().Format(time.TimeOnly), step)
		}
	})
	if err != nil {
		return err
	}
	r.print(out)
	if s.json != "" {
		err = r.save(s.json)
	}
	if s.plot != "" {
		err = errors.Join(err, r.draw(s.plot))
	}
	return err
}
