package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// patience bounds the wait for a process, which has a herd to bring back.
const patience = 2 * time.Minute

// process is one of those that make a herd: this program again. It ends with its input, and so with its parent.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	log     *strings.Builder
	reports chan report // closed when it has ended
}

// start starts processes that do the job, and waits until all of them are ready.
func start(ctx context.Context, n int, j job) (_ group, err error) {
	var g group
	defer func() {
		if err != nil {
			g.end()
		}
	}()
	for range n {
		p, err := startOne(ctx, j)
		if err != nil {
			return nil, fmt.Errorf("start a process for %s: %w", j.Peer, err)
		}
		g = append(g, p)
	}
	_, err = g.gather(ctx)
	return g, err
}

func startOne(ctx context.Context, j job) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program, "work"), log: &strings.Builder{}, reports: make(chan report, 100)}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	return p, json.NewEncoder(p.in).Encode(j)
}

func (p *process) read(out io.Reader) {
	defer close(p.reports)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintf(p.log, "%q: %v\n", lines.Text(), err)
			return
		}
		p.reports <- r
	}
}

// release lets its herd go.
func (p *process) release() error {
	_, err := io.WriteString(p.in, "go\n")
	return err
}

// back waits for the report on its herd, and passes over those of backend calls.
func (p *process) back(ctx context.Context) (report, error) {
	limit := time.After(patience)
	for {
		select {
		case r, ok := <-p.reports:
			switch {
			case !ok:
				_ = p.cmd.Wait() // its log is complete then
				return report{}, fmt.Errorf("a process ended: %s", strings.TrimSpace(p.log.String()))
			case r.Began.IsZero():
				return r, nil
			}
		case <-limit:
			return report{}, fmt.Errorf("a herd was not back within %v", patience)
		case <-ctx.Done():
			return report{}, context.Cause(ctx)
		}
	}
}

// kill kills it.
func (p *process) kill() error { return p.cmd.Process.Kill() }

// end ends it by the end of its input, or kills it if it is busy.
func (p *process) end() {
	_ = p.in.Close()
	kill := time.AfterFunc(time.Second, func() { _ = p.kill() })
	defer kill.Stop()
	for range p.reports { // it must not block on its output
	}
	_ = p.cmd.Wait()
}

// group are the processes of one herd.
type group []*process

func (g group) end() {
	for _, p := range g {
		p.end()
	}
}

func (g group) release() error {
	var errs []error
	for _, p := range g {
		errs = append(errs, p.release())
	}
	return errors.Join(errs...)
}

// gather adds up the reports of all.
func (g group) gather(ctx context.Context) (sum report, err error) {
	for _, p := range g {
		r, err := p.back(ctx)
		if err != nil {
			return sum, err
		}
		sum.Answers = append(sum.Answers, r.Answers...)
		sum.Failed += r.Failed
		sum.Calls += r.Calls
		sum.CPU += r.CPU
		if sum.Err == "" {
			sum.Err = r.Err
		}
	}
	return sum, nil
}
