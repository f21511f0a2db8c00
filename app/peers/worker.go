package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"cachelab/app/backend"
	"cachelab/app/herd"
	"cachelab/app/redisstore"
)

// job is what a process is told, as the first line of its standard input. Each line that follows releases its next herd.
type job struct {
	Peer    string
	Redis   string
	Workers int
	Rounds  int
	Fill    time.Duration
	TTL     time.Duration
	Fails   bool // each backend call, after the time of a fill
	Tell    bool // of each backend call, when it begins
}

// report is a line that a process writes: that a backend call began, or that its herd stands ready and what the one before it
// came to.
type report struct {
	Began   time.Time `json:",omitzero"`
	Answers []answer  `json:",omitempty"`
	Failed  int       // requests without the value
	Err     string    // of the first of those
	Calls   int       // of the backend, so far
	CPU     time.Duration
}

// answer is when a request was released, and when it had the value. The clocks are one, as the machine is.
type answer struct{ Released, At int64 } // microseconds of Unix time

const key = "product:42:price"

// work is a process: it herds as it is told, until its input ends.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	redisstore.DiscardClientLog()
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.Join(errors.New("there is no job"), lines.Err())
	}
	var j job
	if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	which, err := named([]string{j.Peer})
	if err != nil {
		return err
	}
	config := backend.Config{Latency: j.Fill, TTL: j.TTL}
	if j.Fails {
		config.Failures.Share = 1
	}
	w := &worker{lines: lines, out: json.NewEncoder(out), backend: backend.New(config)}
	load := get(w.backend.Load)
	if j.Tell {
		load = func(ctx context.Context, key string) (string, error) {
			if err := w.write(report{Began: time.Now()}); err != nil {
				return "", err
			}
			return w.backend.Load(ctx, key)
		}
	}
	strategy, err := which[0].open(ctx, setting{redis: j.Redis, workers: j.Workers, ttl: j.TTL, load: load})
	if err != nil {
		return fmt.Errorf("open %s: %w", j.Peer, err)
	}
	h := herd.Herd{Strategy: strategy, Key: key, Workers: j.Workers, Rounds: j.Rounds, Keeper: w, Observer: herd.NoObserver{},
		Results: herd.Results{TTL: j.TTL, Keep: w.keep}}
	if _, err := h.Run(ctx); err != nil {
		return err
	}
	return w.tell()
}

type worker struct {
	lines   *bufio.Scanner
	backend *backend.Service
	next    report // what the herd came to so far

	mu  sync.Mutex // guards out
	out *json.Encoder
}

func (w *worker) write(r report) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(r)
}

// AwaitExpiry implements herd.Keeper: the parent knows when the key has expired.
func (w *worker) AwaitExpiry(context.Context, string) error {
	if err := w.tell(); err != nil {
		return err
	}
	if !w.lines.Scan() {
		return errors.Join(io.ErrUnexpectedEOF, w.lines.Err())
	}
	return nil
}

// keep takes the responses of a herd that is back.
func (w *worker) keep(r herd.Response) {
	switch {
	case r.Err != nil:
		w.fail(r.Err)
	case !backend.IsAnswer(key, r.Value):
		w.fail(fmt.Errorf("the value is %q", r.Value))
	default:
		w.next.Answers = append(w.next.Answers, answer{r.At.Add(-r.Elapsed).UnixMicro(), r.At.UnixMicro()})
	}
}

func (w *worker) fail(err error) {
	w.next.Failed++
	if w.next.Err == "" {
		w.next.Err = err.Error()
	}
}

// tell says that the next herd is ready, or that there is none.
func (w *worker) tell() error {
	w.next.Calls = w.backend.Stats().Calls
	w.next.CPU = cpu()
	r := w.next
	w.next = report{}
	return w.write(r)
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
