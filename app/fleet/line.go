// Package fleet is how the processes of one run talk: the one that coordinates, and those that take part. It knows neither
// pipes nor Redis: a [Line] brings its messages.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
)

// Protocol is the number of this version's messages. Processes with another number cannot take part.
const Protocol = 1

// Message is what goes over a line, in either direction. Its kind says what the body is.
type Message struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

// NewMessage returns the message of a kind with a body.
func NewMessage(kind string, body any) (Message, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return Message{}, fmt.Errorf("write the message %q: %w", kind, err)
	}
	return Message{Kind: kind, Body: text}, nil
}

// Read reads the body.
func (m Message) Read(into any) error {
	if err := json.Unmarshal(m.Body, into); err != nil {
		return fmt.Errorf("read the message %q: %w", m.Kind, err)
	}
	return nil
}

// A Line leads from one process to another. Send and Receive may be called at the same time, each by one goroutine at a time.
// Messages come whole, once, and in their order.
type Line interface {
	// Send brings a message on its way. It may wait until the other end has read what was sent before.
	Send(context.Context, Message) error
	// Receive waits for the next message. It returns io.EOF when the other end has closed the line or its process has
	// ended, if the line can know.
	Receive(context.Context) (Message, error)
	Close() error
}
