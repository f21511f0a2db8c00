package backend

import (
	"fmt"
	"strings"
)

// Made are backend calls as their callers know them.
type Made struct {
	Calls      int `json:"calls"`
	NotArrived int `json:"not_arrived"` // known not to have come to the service
	NoAnswer   int `json:"no_answer"`   // may have come
}

// Add adds those of another process.
func (m *Made) Add(more Made) {
	m.Calls += more.Calls
	m.NotArrived += more.NotArrived
	m.NoAnswer += more.NoAnswer
}

// Made returns the client's calls.
func (c *Client) Made() Made {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// Account holds the calls that were made against those that the service counted: "" if they are as many, else what is known
// of the difference.
func Account(m Made, counted int) string {
	if m.Calls == counted {
		return ""
	}
	text := fmt.Sprintf("the lab made %d calls, the service counted %d", m.Calls, counted)
	var known []string
	if m.NotArrived > 0 {
		known = append(known, fmt.Sprintf("%d did not arrive", m.NotArrived))
	}
	if m.NoAnswer > 0 {
		known = append(known, fmt.Sprintf("%d had no answer", m.NoAnswer))
	}
	if most := m.Calls - m.NotArrived; counted > most || counted < most-m.NoAnswer {
		known = append(known, "was the service restarted, or does another process call for this run?")
	}
	return text + ": " + strings.Join(known, ", ")
}
