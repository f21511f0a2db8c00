// Package facts holds what is told of a run: its numbers, under the keys of its JSON, and the round that is drawn. It knows
// neither the terminal nor the page.
package facts

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// Run is everything that is told of one run. Its JSON is part of the contract: see app/README.md.
type Run struct {
	ID       string         `json:"run"`
	Mode     string         `json:"mode"`
	Scenario modes.Scenario `json:"scenario"`
	Drill    string         `json:"drill,omitempty"`
	Redis    string         `json:"redis"`
	Workers  int            `json:"workers"`

	Rate     float64 `json:"rate,omitempty"` // of open traffic: requests a second
	Rounds   int     `json:"rounds"`         // that took place
	Requests int     `json:"requests"`
	NotSent  int     `json:"not_sent,omitempty"` // in open traffic: due while too many were on their way
	Gets     Gets    `json:"gets"`
	Lock     Lock    `json:"lock"`
	Polls    int     `json:"polls"`

	BackendCalls  int `json:"backend_calls"`
	BackendErrors int `json:"backend_errors"`
	BackendPeak   int `json:"backend_peak"` // most calls in flight, running or queued
	Redundant     int `json:"redundant"`    // calls that began while another for the same key was in flight
	Repeated      int `json:"repeated"`     // others that began when the key's newest answer was younger than half the TTL

	PriceService *PriceService `json:"price_service,omitempty"` // that was called, where it is a process of its own

	StoreErrors int `json:"store_errors"`
	Tolerated   int `json:"tolerated"` // store errors that changed nothing: the command was sent again, or was a hint

	Refused     Steps    `json:"refused"`
	Unanswered  Steps    `json:"unanswered"`
	SetsLate    int      `json:"sets_late"`    // fills that were not stored: their lock was lost and a newer value was there
	Wakes       Wakes    `json:"wakes"`        // looks of flights that waited for a ring, by why
	RingsFailed int      `json:"rings_failed"` // PUBLISHes that failed
	FirstErrors []string `json:"first_errors"` // of each kind

	Expiries       int     `json:"expiries"`
	CallsPerExpiry float64 `json:"calls_per_expiry"`
	CallsPerTTL    float64 `json:"calls_per_ttl,omitempty"` // in the gallery, from the first fill on and without it

	CommandsPerRequest float64 `json:"commands_per_request"` // Redis commands that the workers sent

	Outcomes map[cache.Outcome]int `json:"outcomes"`
	Latency  Milliseconds          `json:"latency_ms"`
	WakeLag  Milliseconds          `json:"wake_lag_ms"`
	Age      Milliseconds          `json:"age_ms"`     // of the values served, since the backend answered; of this run's backend
	Overdue  Milliseconds          `json:"overdue_ms"` // how much of that is beyond the TTL

	RedisCommands RedisCommands `json:"redis_commands"`

	// Processes are those of the run, if it was split; the numbers above are of all of them.
	Processes []Process `json:"processes,omitempty"`
	// Spread is how much later the last process was released than the first, over the rounds, by the clock of this machine.
	Spread *Milliseconds `json:"spread_ms,omitempty"`

	Spans    telemetry.SpanCounts `json:"spans"`
	TraceIDs [][]string           `json:"trace_ids"` // a list for each round, an id for each slice of 50 workers that was sampled

	Verdict  herd.Verdict `json:"verdict"`
	Error    string       `json:"error,omitempty"` // why the run ended early
	Overhead float64      `json:"overhead_s"`      // wall time minus the rounds and the waits for expiry
	Started  time.Time    `json:"started"`
	Duration float64      `json:"duration_s"`

	// For the pictures: the recorded round, and the latency of each request in ascending order.
	Waterfall Waterfall       `json:"-"`
	Latencies []time.Duration `json:"-"`
	Series    *herd.Series    `json:"-"` // nil but in the gallery
}

// Process is a process of a run.
type Process struct {
	Number       int    `json:"number"` // from 1
	PID          int    `json:"pid"`
	Host         string `json:"host"`
	Elsewhere    bool   `json:"elsewhere,omitempty"` // on another machine than the coordinator
	Requests     int    `json:"requests"`
	BackendCalls int    `json:"backend_calls"`
	Lost         string `json:"lost,omitempty"` // why it was not there at the end: what it alone knew is not available
}

// Lost reports whether a process of the run was.
func (r Run) Lost() bool {
	return slices.ContainsFunc(r.Processes, func(p Process) bool { return p.Lost != "" })
}

// PriceService is what a backend that is a process of its own says of the run.
type PriceService struct {
	URL  string  `json:"url"`
	Told *Served `json:"told"`           // nil if it did not tell
	Text string  `json:"text,omitempty"` // what does not add up, or is not known
}

// Served are the calls that it counted.
type Served struct {
	Calls     int `json:"calls"`
	Peak      int `json:"peak"`
	Redundant int `json:"redundant"`
	Repeated  int `json:"repeated"`
}

// Gets are the replies to GET.
type Gets struct {
	Hit  int `json:"hit"`
	Miss int `json:"miss"`
}

// Lock is what happened to the fill lock.
type Lock struct {
	Acquired  int `json:"acquired"`
	Held      int `json:"held"`
	Rechecked int `json:"rechecked"`
	Released  int `json:"released"`
	Lost      int `json:"lost"`
	LostEarly int `json:"lost_early"` // those of the lost whose TTL had not passed
	Timeouts  int `json:"timeouts"`
}

// Wakes are looks of flights that waited for a ring.
type Wakes struct {
	Message   int `json:"message"`
	Look      int `json:"look"`
	Reconnect int `json:"reconnect"`
}

// Steps are fills and releases with one fate.
type Steps struct {
	Set     int `json:"set"`
	Release int `json:"release"`
}

// Milliseconds are quantiles in milliseconds. In JSON they are null where they cannot be known: across machines.
type Milliseconds struct {
	P50     float64
	P95     float64
	P99     float64
	Max     float64
	Unknown bool // the others are 0 then
}

type knownMilliseconds struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// MarshalJSON implements [json.Marshaler].
func (m Milliseconds) MarshalJSON() ([]byte, error) {
	if m.Unknown {
		return []byte("null"), nil
	}
	return json.Marshal(knownMilliseconds{m.P50, m.P95, m.P99, m.Max})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Milliseconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*m = Milliseconds{Unknown: true}
		return nil
	}
	var known knownMilliseconds
	err := json.Unmarshal(text, &known)
	*m = Milliseconds{P50: known.P50, P95: known.P95, P99: known.P99, Max: known.Max}
	return err
}

// RedisCommands is Redis's own count of what the workers sent, and what that is worth.
type RedisCommands struct {
	redisstore.Commands
	Standing redisstore.Standing `json:"standing"`
}

// Add adds what was counted in another phase. The sum stands as badly as the worse of the two.
func (c *RedisCommands) Add(more redisstore.Commands, standing redisstore.Standing) {
	c.Get += more.Get
	c.Set += more.Set
	c.Eval += more.Eval
	c.Del += more.Del
	c.Publish += more.Publish
	switch {
	case c.Standing == redisstore.NotAvailable, standing == redisstore.NotAvailable:
		*c = RedisCommands{Standing: redisstore.NotAvailable}
	case c.Standing != redisstore.Shared:
		c.Standing = standing
	}
}

// Details are what is told of a run beside its ledger.
type Details struct {
	ID, Mode, Redis string
	Scenario        modes.Scenario
	Drill           string  // its name, "" for none
	Rate            float64 // of open traffic, requests a second; 0 for none
	BackendPeak     int
	PriceService    *PriceService // nil for the backend inside
	RedisCommands   RedisCommands
	Spans           telemetry.SpanCounts
	TraceIDs        [][]string
	Verdict         herd.Verdict
	Err             error        // why the run ended early
	Waterfall       Waterfall    // recorded, if pictures are wanted
	Series          *herd.Series // of the gallery; nil for none
	Processes       []Process    // of a run that was split; nil otherwise
	Started         time.Time
	Duration        time.Duration
}

// NewRun puts the ledger and the details together.
func NewRun(l herd.Ledger, d Details) Run {
	r := Run{
		ID: d.ID, Mode: d.Mode, Scenario: d.Scenario, Drill: d.Drill, Redis: d.Redis, Rate: d.Rate,
		Workers: l.Workers, Rounds: l.Rounds, Requests: l.Requests, NotSent: l.NotSent,
		Gets: Gets{Hit: l.Hits, Miss: l.Misses},
		Lock: Lock{
			Acquired: l.Acquired, Held: l.Held, Rechecked: l.Rechecked,
			Released: l.Released, Lost: l.Lost, LostEarly: l.LostEarly, Timeouts: l.Timeouts,
		},
		Polls:        l.Polls,
		BackendCalls: l.BackendCalls, BackendErrors: l.BackendErrors, BackendPeak: d.BackendPeak, PriceService: d.PriceService,
		Redundant: l.Redundant, Repeated: l.Repeated,
		StoreErrors: l.StoreErrors, Tolerated: l.Tolerated,
		Refused:        Steps{Set: l.SetsRefused, Release: l.ReleasesRefused},
		Unanswered:     Steps{Set: l.SetsUnanswered, Release: l.ReleasesUnanswered},
		SetsLate:       l.SetsLate,
		Wakes:          Wakes{Message: l.WokenByMessage, Look: l.WokenByLook, Reconnect: l.WokenByReconnect},
		RingsFailed:    l.RingsFailed,
		FirstErrors:    []string{},
		Expiries:       l.Expiries,
		CallsPerExpiry: herd.CallsPerExpiry(l.BackendCalls, l.Expiries),
		Outcomes:       map[cache.Outcome]int{},
		Latency:        milliseconds(l.Latency),
		WakeLag:        milliseconds(l.WakeLag),
		Age:            milliseconds(l.Age),
		Overdue:        milliseconds(l.Overdue),
		RedisCommands:  d.RedisCommands,
		Processes:      d.Processes,
		Spans:          d.Spans,
		TraceIDs:       [][]string{},
		Verdict:        d.Verdict,
		Overhead:       (d.Duration - l.InRounds - l.Expiring).Seconds(),
		Started:        d.Started,
		Duration:       d.Duration.Seconds(),
		Waterfall:      d.Waterfall,
		Latencies:      l.Latencies(),
	}
	if len(d.Processes) > 0 && !r.Traffic() {
		spread := milliseconds(l.Spread)
		spread.Unknown = slices.ContainsFunc(d.Processes, func(p Process) bool { return p.Elsewhere })
		r.Spread = &spread
	}
	if l.Elsewhere { // times of two machines are never subtracted
		unknown := Milliseconds{Unknown: true}
		r.WakeLag, r.Age, r.Overdue = unknown, unknown, unknown
	}
	for _, outcome := range cache.Outcomes() {
		r.Outcomes[outcome] = l.Outcomes[outcome]
	}
	for _, err := range l.FirstErrors() {
		r.FirstErrors = append(r.FirstErrors, err.Error())
	}
	if r.Requests > 0 {
		r.CommandsPerRequest = float64(l.Sent.Total()) / float64(r.Requests)
	}
	if d.Series != nil {
		r.Series, r.CallsPerTTL = d.Series, d.Series.CallsPerTTL()
	}
	if d.TraceIDs != nil {
		r.TraceIDs = d.TraceIDs
	}
	if d.Err != nil {
		r.Error = d.Err.Error()
	}
	return r
}

// Traced is a round that has traces.
type Traced struct {
	Round int // from 1
	IDs   []string
}

// Traced are the rounds that a sampler left something of.
func (r Run) Traced() (all []Traced) {
	for i, ids := range r.TraceIDs {
		if len(ids) > 0 {
			all = append(all, Traced{i + 1, ids})
		}
	}
	return all
}

// Traffic reports whether workers asked on their own, and not in rounds.
func (r Run) Traffic() bool { return r.Scenario == modes.Live || r.Gallery() }

// Gallery reports whether this is one mode of the gallery.
func (r Run) Gallery() bool { return r.Scenario == modes.Gallery }

func milliseconds(q herd.Quantiles) Milliseconds {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Milliseconds{P50: ms(q.P50), P95: ms(q.P95), P99: ms(q.P99), Max: ms(q.Max)}
}

// WriteJSON writes a run or a list of runs.
func WriteJSON(w io.Writer, what any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(what)
}
