// Package children starts processes of a run on this machine, and talks with them by pipes.
package children

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"cachelab/app/fleet"
)

// Child is a process that was started.
type Child struct {
	fleet.Line
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone, and its state is there
}

// Start starts a program, whose standard input and output become the line. It has no part in the terminal's Ctrl-C: it leaves
// when the line ends, however this process ends. What it complains of goes to stderr. The caller must Close the child.
func Start(program string, args, environ []string, stderr io.Writer) (*Child, error) {
	cmd := exec.Command(program, args...) // not by a context: it is the coordinator that ends it, in order
	cmd.Env, cmd.Stderr = environ, stderr
	inOwnGroup(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	// Not cmd.StdoutPipe, which Wait closes: what the process said last is read all the same.
	out, writes, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	cmd.Stdout = writes
	err = cmd.Start()
	err = errors.Join(err, writes.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a process: %w", err), out.Close())
	}
	c := &Child{Line: NewLine(out, in), cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // its state says how it ended
	}()
	return c, nil
}

// Pid is the process's id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// How says how the process ended; "" if it did not within a moment.
func (c *Child) How() string {
	select {
	case <-c.ended:
		return c.cmd.ProcessState.String()
	case <-time.After(200 * time.Millisecond): // its pipes are closed before its parent is told
		return ""
	}
}

// leaveWait is how long a process may take to leave once its line has ended.
const leaveWait = 5 * time.Second

// End closes the line and waits until the process has left. One that does not within a moment is killed.
func (c *Child) End() {
	_ = c.Close()
	select {
	case <-c.ended:
	case <-time.After(leaveWait):
		c.Kill()
	}
}

// Kill ends the process at once, also one that is stopped: it does not see its line end, at which it would leave in order.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // unless it has ended
	<-c.ended
	_ = c.Close()
}
