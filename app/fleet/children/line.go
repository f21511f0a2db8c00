package children

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"cachelab/app/fleet"
)

// line is a line of two pipes: each message is a line of JSON.
type line struct {
	in  io.ReadCloser
	out io.WriteCloser
	buf *bufio.Reader
}

// NewLine returns the line that receives from one pipe, and sends to another. It closes both. A context does not end a Send or a
// Receive that waits for the pipe: Close does, if the pipes can.
func NewLine(in io.ReadCloser, out io.WriteCloser) fleet.Line {
	return &line{in: in, out: out, buf: bufio.NewReader(in)}
}

// Send implements [fleet.Line].
func (l *line) Send(_ context.Context, m fleet.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(text, '\n'))
	return err
}

// Receive implements [fleet.Line].
func (l *line) Receive(context.Context) (m fleet.Message, err error) {
	text, err := l.buf.ReadBytes('\n')
	if err != nil { // a process that was killed may have left half a message
		return m, io.EOF
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("it said %.40q, which is no message: %w", text, err)
	}
	return m, nil
}

// Close implements [fleet.Line].
func (l *line) Close() error { return errors.Join(l.in.Close(), l.out.Close()) }
