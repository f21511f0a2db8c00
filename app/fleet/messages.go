package fleet

import (
	"encoding/json"
	"time"
)

// The kinds of messages, in the order of a run. Who takes part says hello first, and is welcomed or refused; after that the
// coordinator asks, and the process answers.
const (
	KindHello   = "hello"   // process: [Hello]
	KindWelcome = "welcome" // coordinator: [Welcome]
	KindRefused = "refused" // coordinator: [Refused]
	KindReady   = "ready"   // process: [Ready]
	KindFailed  = "failed"  // process: [Failed], in place of any answer; it leaves

	KindGather   = "gather"   // coordinator: [Gather]
	KindGathered = "gathered" // process
	KindDismiss  = "dismiss"  // coordinator: who is at the barrier leaves it; no answer
	KindGo       = "go"       // coordinator: [Go]
	KindLines    = "lines"    // process: [Lines], as many as it takes
	KindDone     = "done"     // process: [Done]

	KindStep  = "step"  // process, if it is doomed: what it did
	KindToken = "token" // coordinator: [Token], which it waits for after its miss

	KindPhase     = "phase"      // coordinator: [Phase], of traffic; lines come meanwhile
	KindPhaseDone = "phase done" // process: [PhaseDone]

	KindStop = "stop" // coordinator: [Stop]; the round or phase ends in order, and is answered as usual
	KindEnd  = "end"  // coordinator
	KindSeen = "seen" // process: [Seen], as many as it takes
	KindBye  = "bye"  // process: [Bye]; it leaves

	kindAlive = "alive" // both, once in a while: see [Peer]
)

// Setting is a setting of the run by the name of its flag.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Hello is who wants to take part.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"` // of the program
	PID      int    `json:"pid"`
	Host     string `json:"host"`
	// Connections to Redis are those that it has made so far.
	Connections int `json:"connections,omitempty"`
	// Settings are those that its user gave; the others are the coordinator's.
	Settings []Setting `json:"settings,omitempty"`
}

// Welcome tells a process what the run is.
type Welcome struct {
	Run       string    `json:"run"`       // its id
	Process   int       `json:"process"`   // the number of the one who is welcomed, from 1
	Processes int       `json:"processes"` // in the run
	Scenario  string    `json:"scenario"`
	Modes     []string  `json:"modes"`   // in rounds there is one
	Capture   bool      `json:"capture"` // the spans of the first round are wanted
	Settings  []Setting `json:"settings"`
	// Doomed says that the process will be killed in its first backend call: it has one worker and no telemetry, and tells each step
	// before the next.
	Doomed bool `json:"doomed,omitempty"`
}

// Token is that of a fill lock.
type Token struct {
	Token string `json:"token"`
}

// Refused says why somebody cannot take part.
type Refused struct {
	Why string `json:"why"`
}

// Ready says that a process is connected.
type Ready struct {
	Started     time.Time `json:"started"`     // the times of its responses are from then on, by the clock of its machine
	Connections int       `json:"connections"` // to Redis, that it made so far
}

// Failed says why a process cannot go on.
type Failed struct {
	Error string `json:"error"`
}

// Gather brings the workers to the barrier of a round.
type Gather struct {
	Round   int `json:"round"`
	Workers int `json:"workers"` // of all processes
}

// Go opens the barrier.
type Go struct {
	Traces []string `json:"traces,omitempty"` // the contexts of the round's root spans, one for each slice of workers: W3C traceparents
}

// Lines are responses, each a line as the results file has them.
type Lines struct {
	Lines []json.RawMessage `json:"lines"`
}

// Done says that all workers of a round are back.
type Done struct {
	Opened      time.Time `json:"opened"` // the barrier, by the clock of the process's machine
	Connections int       `json:"connections"`
}

// Phase lets traffic flow for a time.
type Phase struct {
	Mode   string        `json:"mode"`
	Length time.Duration `json:"length_ns"` // 0: until Stop
	Think  time.Duration `json:"think_ns"`  // of a worker between two requests, on average
	Rate   float64       `json:"rate"`      // if more than 0: of open traffic, requests a second of all processes
}

// PhaseDone is what a phase came to, beside its responses.
type PhaseDone struct {
	Elapsed     time.Duration `json:"elapsed_ns"`
	NotSent     int           `json:"not_sent,omitempty"` // in this phase
	Connections int           `json:"connections"`
}

// Stop ends a round or a phase before its time.
type Stop struct {
	Why string `json:"why"`
}

// Seen are spans of the round that is drawn, as [Bye] counts them.
type Seen struct {
	Mode  string            `json:"mode"`
	Spans []json.RawMessage `json:"spans"`
}

// Bye is what only the process knows of its part, when its telemetry has been delivered: a part for each mode.
type Bye struct {
	Connections int    `json:"connections"`
	Parts       []Part `json:"parts"`
}

// Part is what one mode of a run left behind in one process.
type Part struct {
	Mode      string          `json:"mode"`
	Spans     json.RawMessage `json:"spans"` // their counts
	Links     int             `json:"links"`
	Unsampled int             `json:"unsampled"`        // traces
	Traces    [][]string      `json:"traces,omitempty"` // of traffic, whose rounds are the process's own
	Omitted   int             `json:"omitted"`          // spans of the drawn round that were not kept
	Error     string          `json:"error,omitempty"`  // what could not be delivered
}
