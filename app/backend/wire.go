package backend

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"cachelab/app/price"
)

// What goes over HTTP. Durations are nanoseconds.
type (
	// About is what GET / tells: what the service is like.
	About struct {
		Service  string        `json:"service"`
		Version  string        `json:"version"`
		Machine  string        `json:"machine"` // whose clock it reads; "" if that cannot be told
		Latency  time.Duration `json:"latency_ns"`
		Jitter   float64       `json:"jitter"`
		Capacity int           `json:"capacity"`
		Failures string        `json:"failures"`
		Seed     uint64        `json:"seed"`
	}

	// Report is what GET /runs/ID tells: what the service counted of a run.
	Report struct {
		Run       string `json:"run"`
		Calls     int    `json:"calls"`
		InFlight  int    `json:"in_flight"`
		Queued    int    `json:"queued"`
		Peak      int    `json:"peak"`
		Redundant int    `json:"redundant"`
		Repeated  int    `json:"repeated"`
		// Spans of the run's calls, flushed before it answers; nil where the service makes none.
		Spans *SpanCounts `json:"spans,omitempty"`
	}

	// SpanCounts say what became of spans: ended = exported + dropped.
	SpanCounts struct {
		Ended    int `json:"ended"`
		Exported int `json:"exported"`
		Dropped  int `json:"dropped"`
	}

	// answer is what GET /price tells; error is there if the call failed, else what is before.
	answer struct {
		Price      string        `json:"price,omitempty"`
		Backend    string        `json:"backend,omitempty"` // with the generation, it names the answer
		Generation int           `json:"generation,omitempty"`
		Delta      time.Duration `json:"delta_ns,omitempty"`
		Answered   time.Time     `json:"answered,omitzero"`
		Error      string        `json:"error,omitempty"`

		Call      int           `json:"call,omitempty"`
		InFlight  int           `json:"in_flight,omitempty"`
		Queued    time.Duration `json:"queued_ns"`
		Redundant bool          `json:"redundant"`
		Repeated  bool          `json:"repeated"`
	}
)

// ServiceName is what the service calls itself, here and in its traces.
const ServiceName = "price-service"

// The paths and parameters of requests.
const (
	pathPrice  = "/price"
	pathRuns   = "/runs/"
	pathHealth = "/healthz"

	paramKey = "key"
	paramRun = "run"
	paramTTL = "ttl"
)

func newAnswer(v price.Value, c Call) answer {
	a := answer{Call: c.Number, InFlight: c.InFlight, Queued: c.Queued, Redundant: c.Redundant, Repeated: c.Repeated}
	if c.Err != nil {
		a.Error = c.Err.Error()
		return a
	}
	a.Price, a.Backend, a.Generation, a.Delta, a.Answered = v.Price, v.Backend, v.Number, v.Delta, c.Answered
	return a
}

func (a answer) value() price.Value {
	return price.Value{Price: a.Price, Generation: price.Generation{Backend: a.Backend, Number: a.Generation}, Delta: a.Delta}
}

func (a answer) call() Call {
	return Call{Number: a.Call, InFlight: a.InFlight, Queued: a.Queued, Redundant: a.Redundant, Repeated: a.Repeated, Answered: a.Answered}
}

// thisMachine names the machine of this process: times that two processes of it read can be subtracted. It is "" where the
// system does not tell.
func thisMachine() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // containers share their kernel's clock, and this
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// writeJSON answers; who has left is not told.
func writeJSON(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what)
}
