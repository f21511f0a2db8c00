// Package results is the file of what a run brought back: a line of JSON for each response, and a few that say whose they are.
// The ledger is folded out of it again. What the file does not hold: the values that were served, and the spans of the round
// that is drawn.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/telemetry"
)

// The types of lines. They may stand in any order, and in several files.
const (
	typeRun      = "run"      // of each run in each of its modes: what was set
	typeProcess  = "process"  // of each process that took part in it
	typeResponse = "response" // of each request: what it brought back
	typeWork     = "work"     // of each flight and each refresh in the background: a line like a response's
	typeEnd      = "end"      // what the run as a whole came to
)

// format is the number of the format of a run's lines.
const format = 1

// Setting is one setting as the user knows it.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Start is what is known of a run in one mode before its first request.
type Start struct {
	Type     string         `json:"t"`
	Format   int            `json:"format"`
	Run      string         `json:"run"` // its id
	Mode     string         `json:"mode"`
	Scenario modes.Scenario `json:"scenario"`
	Drill    string         `json:"drill,omitempty"`
	Redis    string         `json:"redis"`
	Version  string         `json:"version"` // of the program
	Workers  int            `json:"workers"`
	Rate     float64        `json:"rate,omitempty"` // of open traffic: requests a second
	TTL      time.Duration  `json:"ttl"`
	Settings []Setting      `json:"settings"`
}

// process is one process of a run: times of its responses are from its start.
type process struct {
	Type    string    `json:"t"`
	Process string    `json:"p"` // random
	Run     string    `json:"run"`
	Mode    string    `json:"mode"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
	Number  int       `json:"number,omitempty"` // from 1; 0 if the run has only one
	// Elsewhere: on another machine than the process that wrote the line.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// End is what is known of a run in one mode when it is over. Durations are in nanoseconds.
type End struct {
	Type          string               `json:"t"`
	Run           string               `json:"run"`
	Mode          string               `json:"mode"`
	Requests      int                  `json:"requests"`        // how many responses there must be
	Works         int                  `json:"works,omitempty"` // likewise
	NotSent       int                  `json:"not_sent,omitempty"`
	Started       time.Time            `json:"started"`
	Duration      time.Duration        `json:"duration"`
	Overhead      time.Duration        `json:"overhead"`
	BackendPeak   int                  `json:"backend_peak"`
	PriceService  *facts.PriceService  `json:"price_service,omitempty"`
	RedisCommands facts.RedisCommands  `json:"redis_commands"`
	Spans         telemetry.SpanCounts `json:"spans"`
	TraceIDs      [][]string           `json:"trace_ids"`
	Verdict       herd.Verdict         `json:"verdict"`
	Error         string               `json:"error,omitempty"`
	Spread        herd.Quantiles       `json:"spread"`
	Processes     []facts.Process      `json:"processes,omitempty"`
}

// response is one response; what is 0 is left out. Times are nanoseconds from the start of its process.
type response struct {
	Type    string        `json:"t"`
	Process string        `json:"p,omitempty"`
	Round   int           `json:"r"`
	Worker  int           `json:"w"`
	Work    herd.Work     `json:"k,omitempty"` // its kind
	Outcome cache.Outcome `json:"o"`
	At      time.Duration `json:"at"` // when the answer came

	Elapsed   time.Duration `json:"el,omitempty"`
	Waited    time.Duration `json:"wt,omitempty"`
	Loaded    time.Duration `json:"ld,omitempty"` // when its backend call returned a value
	Answered  time.Duration `json:"an,omitempty"` // when the backend had made the value that was served
	Redundant int           `json:"rd,omitempty"`
	Repeated  int           `json:"rp,omitempty"`
	counts
	sent
	Errors *errorTexts `json:"e,omitempty"`

	// Value is what was served, where the line goes to the process that knows when it was made, and not into a file.
	Value string `json:"v,omitempty"`
}

// counts are cache.Counts: the conversion holds that none is missing.
type counts struct {
	Hits    int `json:"h,omitempty"`
	Misses  int `json:"m,omitempty"`
	Polls   int `json:"po,omitempty"`
	Expired int `json:"ex,omitempty"`

	Acquired  int `json:"aq,omitempty"`
	Held      int `json:"hd,omitempty"`
	Rechecked int `json:"rc,omitempty"`
	Released  int `json:"rl,omitempty"`
	Lost      int `json:"lo,omitempty"`
	LostEarly int `json:"le,omitempty"`
	Timeouts  int `json:"to,omitempty"`

	BackendCalls  int `json:"bc,omitempty"`
	BackendErrors int `json:"be,omitempty"`
	StoreErrors   int `json:"se,omitempty"`
	Tolerated     int `json:"tl,omitempty"`

	SetsAbsent         int `json:"sa,omitempty"`
	SetsReplaced       int `json:"sr,omitempty"`
	SetsRefused        int `json:"sf,omitempty"`
	SetsLate           int `json:"sn,omitempty"`
	SetsUnanswered     int `json:"su,omitempty"`
	ReleasesRefused    int `json:"rf,omitempty"`
	ReleasesUnanswered int `json:"ru,omitempty"`

	WokenByMessage   int `json:"wm,omitempty"`
	WokenByLook      int `json:"wl,omitempty"`
	WokenByReconnect int `json:"wr,omitempty"`
	RingsFailed      int `json:"pf,omitempty"`
}

// sent is cache.Sent.
type sent struct {
	Get            int `json:"sg,omitempty"`
	Set            int `json:"ss,omitempty"`
	Lock           int `json:"sl,omitempty"`
	Unlock         int `json:"sx,omitempty"`
	StoreAndUnlock int `json:"sy,omitempty"`
	Publish        int `json:"sp,omitempty"`
}

// errorTexts are the errors of a response, by step.
type errorTexts struct {
	Get     string `json:"get,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Set     string `json:"set,omitempty"`
	Unlock  string `json:"unlock,omitempty"`
	Load    string `json:"load,omitempty"`
	Publish string `json:"publish,omitempty"`
	Other   string `json:"other,omitempty"` // why it failed, if that is none of these
}

func newResponse(r herd.Response, process string, started time.Time) response {
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return 0
		}
		return t.Sub(started)
	}
	kind := typeResponse
	if r.Work != "" {
		kind = typeWork
	}
	line := response{Type: kind, Process: process, Round: r.Worker.Round, Worker: r.Worker.Number, Outcome: r.Outcome,
		At: since(r.At), Elapsed: r.Elapsed, Waited: r.Waited, Loaded: since(r.Loaded), Answered: since(r.Answered),
		Redundant: r.Redundant, Repeated: r.Repeated, Work: r.Work, counts: counts(r.Counts), sent: sent(r.Sent)}
	if r.Err == nil && r.Errors == (cache.Errors{}) {
		return line
	}
	line.Errors = &errorTexts{Get: text(r.Errors.Get), Lock: text(r.Errors.Lock), Set: text(r.Errors.Set), Unlock: text(r.Errors.Unlock),
		Load: text(r.Errors.Load), Publish: text(r.Errors.Publish), Other: text(r.OtherError())}
	return line
}

// response is what the line was made of, in a process that began at that time.
func (line response) response(started time.Time) herd.Response {
	at := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return started.Add(d)
	}
	r := herd.Response{Worker: herd.Worker{Round: line.Round, Number: line.Worker}, At: started.Add(line.At), Elapsed: line.Elapsed,
		Answered: at(line.Answered), Redundant: line.Redundant, Repeated: line.Repeated, Work: line.Work}
	r.Outcome, r.Waited, r.Loaded, r.Value = line.Outcome, line.Waited, at(line.Loaded), line.Value
	r.Counts, r.Sent = cache.Counts(line.counts), cache.Sent(line.sent)
	if e := line.Errors; e != nil {
		r.Errors = cache.Errors{Get: failure(e.Get), Lock: failure(e.Lock), Set: failure(e.Set), Unlock: failure(e.Unlock), Load: failure(e.Load),
			Publish: failure(e.Publish)}
		r.Err = failure(e.Other)
	}
	return r
}

// epoch is when processes begin whose line is not read yet.
var epoch = time.Unix(0, 0)

// Encode returns a response as a line, for another process of the run, with its value: that process may know when it was made.
// Times are from the start of this one.
func Encode(r herd.Response, started time.Time) (json.RawMessage, error) {
	line := newResponse(r, "", started)
	line.Value = r.Value
	text, err := json.Marshal(line)
	if err != nil {
		return nil, fmt.Errorf("write a response: %w", err)
	}
	return text, nil
}

// Decode reads such a line of a process.
func Decode(text json.RawMessage, p Process) (herd.Response, error) {
	var line response
	if err := json.Unmarshal(text, &line); err != nil {
		return herd.Response{}, fmt.Errorf("read a response: %w", err)
	}
	if err := line.check(); err != nil {
		return herd.Response{}, err
	}
	r := line.response(p.Started)
	r.Worker.Process, r.Elsewhere = p.Number, p.Elsewhere
	return r, nil
}

func (line response) check() error {
	if line.Round < 1 || line.Worker < 1 || !slices.Contains(outcomes, line.Outcome) {
		return errors.New("a response without its process, round, worker or outcome")
	}
	return nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func failure(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}
