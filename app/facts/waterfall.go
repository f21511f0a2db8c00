package facts

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"cachelab/telemetry"
)

// Waterfall is one round as the pictures show it, made from its spans. All times are from the first worker's start.
type Waterfall struct {
	Number   int           `json:"number"` // from 1; 0 if there is none
	Workers  int           `json:"workers"`
	Calls    int           `json:"calls"` // backend calls, as the round's span says
	Rows     []Row         `json:"rows"`
	InFlight []Level       `json:"in_flight"`
	Peak     int           `json:"peak"`       // most backend calls in flight
	Elapsed  time.Duration `json:"elapsed_ns"` // to the last answer
	Kept     int           `json:"kept"`       // spans that were recorded
	Omitted  int           `json:"omitted"`    // spans that were not
}

// Row is one worker.
type Row struct {
	Process  string        `json:"process,omitempty"` // its process, if the run has several
	Worker   int           `json:"worker"`
	Outcome  string        `json:"outcome"`
	Start    time.Duration `json:"start_ns"`
	Answer   time.Duration `json:"answer_ns"`           // when it was answered
	Bars     []Bar         `json:"bars"`                // a longer one before those that lie on it
	Winner   bool          `json:"winner,omitempty"`    // held the fill lock and called the backend
	WaitsFor []int         `json:"waits_for,omitempty"` // the winners, as its links say; 0 for one that is not recorded
	Polls    int           `json:"polls,omitempty"`
	Failed   bool          `json:"failed,omitempty"`

	process int // its number, from 1; 0 if the run has only one
}

// Bar is one span of a worker.
type Bar struct {
	Kind   string        `json:"kind"` // the span's name
	Start  time.Duration `json:"start_ns"`
	End    time.Duration `json:"end_ns"`
	Queued time.Duration `json:"queued_ns,omitempty"` // of a backend call: waited for capacity first
	Text   string        `json:"text,omitempty"`      // what the span says of itself
}

// Level is how many backend calls are in flight from a time on.
type Level struct {
	At time.Duration `json:"at_ns"`
	N  int           `json:"n"`
}

// NewWaterfall reads a recording.
func NewWaterfall(r telemetry.Recording) Waterfall {
	b := roundBuilder{spans: map[string]telemetry.Span{}, rows: map[string]*Row{}}
	for _, s := range r.Spans {
		b.spans[s.ID] = s
		if s.Name == telemetry.SpanWorker && (b.zero.IsZero() || s.Start.Before(b.zero)) {
			b.zero = s.Start
		}
	}
	round := Waterfall{Number: r.Round, Workers: r.Workers, Kept: len(r.Spans), Omitted: r.Omitted}
	for _, s := range r.Spans {
		if s.Parent == "" {
			round.Calls = int(number(s, telemetry.BackendCalls))
		}
		if s.Name == telemetry.SpanWorker {
			outcome, _ := s.Attributes[string(telemetry.Outcome)].(string)
			b.rows[s.ID] = &Row{process: int(number(s, telemetry.Process)), Worker: int(number(s, telemetry.Number)), Outcome: outcome, Failed: s.Failed, Start: b.at(s.Start), Answer: b.at(s.End)}
			round.Elapsed = max(round.Elapsed, b.at(s.End))
		}
	}
	for _, s := range r.Spans {
		b.add(s)
	}
	for _, row := range b.rows {
		row.Winner = row.Winner && slices.ContainsFunc(row.Bars, func(bar Bar) bool { return bar.Kind == telemetry.SpanBackendCall })
		slices.SortFunc(row.Bars, func(x, y Bar) int {
			return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(y.End, x.End))
		})
		round.Rows = append(round.Rows, *row)
	}
	slices.SortFunc(round.Rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.process, y.process), first(x.Winner, y.Winner), cmp.Compare(x.Answer, y.Answer), cmp.Compare(x.Worker, y.Worker))
	})
	round.InFlight, round.Peak = inFlight(round.Rows)
	return round
}

// first puts x first if only x is true.
func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// roundBuilder finds the worker of each span.
type roundBuilder struct {
	zero  time.Time
	spans map[string]telemetry.Span
	rows  map[string]*Row // by the worker's span
}

func (b *roundBuilder) at(t time.Time) time.Duration { return t.Sub(b.zero) }

// rowOf climbs to the worker; nil if its span was not recorded.
func (b *roundBuilder) rowOf(id string) *Row {
	for id != "" {
		if row := b.rows[id]; row != nil {
			return row
		}
		id = b.spans[id].Parent
	}
	return nil
}

// add adds a span to its worker's row. Round, worker and MISS are the row itself, and no bars on it; the backend's own are in
// that of the call.
func (b *roundBuilder) add(s telemetry.Span) {
	row := b.rowOf(s.Parent)
	notDrawn := []string{telemetry.SpanMiss, telemetry.SpanPrice, telemetry.SpanQueued, telemetry.SpanCompute}
	if row == nil || slices.Contains(notDrawn, s.Name) {
		return
	}
	bar := Bar{Kind: s.Name, Start: b.at(s.Start), End: b.at(s.End), Text: spanText(s)}
	switch s.Name {
	case telemetry.SpanBackendCall:
		bar.Queued = time.Duration(number(s, telemetry.Queued) * float64(time.Millisecond))
	case telemetry.SpanLock:
		if s.Attributes[string(telemetry.LockAcquired)] == true {
			row.Winner = true
		}
	case telemetry.SpanWait:
		row.Polls += int(number(s, telemetry.Polls))
		for _, link := range s.Links {
			winner := 0
			if w := b.rowOf(link); w != nil {
				winner = w.Worker
			}
			if !slices.Contains(row.WaitsFor, winner) {
				row.WaitsFor = append(row.WaitsFor, winner)
			}
		}
	}
	row.Bars = append(row.Bars, bar)
}

// number is an attribute of a span; 0 if it has none.
func number(s telemetry.Span, key attribute.Key) float64 {
	switch n := s.Attributes[string(key)].(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// spanText is the answer of a command.
func spanText(s telemetry.Span) string {
	say := func(key string, yes, no string) string {
		answer, known := s.Attributes[key].(bool)
		switch {
		case !known:
			return "failed"
		case answer:
			return yes
		}
		return no
	}
	switch s.Name {
	case telemetry.SpanGet:
		return say(string(telemetry.CacheHit), "hit", "miss")
	case telemetry.SpanLock:
		return say(string(telemetry.LockAcquired), "acquired", "held by another")
	case telemetry.SpanSet:
		return say(string(telemetry.EndedCycle), "ended the cycle", "over a value that was there")
	case telemetry.SpanStoreAndUnlock:
		if s.Attributes[string(telemetry.Stored)] == false {
			return "late: a newer value is there"
		}
		return say(string(telemetry.EndedCycle), "ended the cycle", "over a value that was there") + ", " +
			say(string(telemetry.LockReleased), "released", "no longer ours")
	case telemetry.SpanDel:
		return say(string(telemetry.LockReleased), "released", "no longer ours")
	}
	if s.Failed {
		return "failed"
	}
	return ""
}

// inFlight counts the backend calls over time.
func inFlight(rows []Row) (steps []Level, peak int) {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, row := range rows {
		for _, bar := range row.Bars {
			if bar.Kind == telemetry.SpanBackendCall {
				changes = append(changes, change{bar.Start, +1}, change{bar.End, -1})
			}
		}
	}
	slices.SortStableFunc(changes, func(x, y change) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.by, y.by)) })
	n := 0
	for _, c := range changes {
		n += c.by
		peak = max(peak, n)
		if last := len(steps) - 1; last >= 0 && steps[last].At == c.at {
			steps[last].N = n
		} else {
			steps = append(steps, Level{c.at, n})
		}
	}
	return steps, peak
}

// Of names the processes of the workers, if the run has several.
func (r Waterfall) Of(processes []Process) Waterfall {
	for i, row := range r.Rows {
		if row.process > 0 && row.process <= len(processes) {
			r.Rows[i].Process = processes[row.process-1].String()
		}
	}
	return r
}

// Sample returns at most n rows: winners, and of the others evenly chosen ones, in order.
func (r Waterfall) Sample(n int) (chosen []Row) {
	if len(r.Rows) <= n {
		return r.Rows
	}
	var winners, others []int
	for i, row := range r.Rows {
		if row.Winner {
			winners = append(winners, i)
		} else {
			others = append(others, i)
		}
	}
	places := winners[:min(len(winners), n/2)]
	n -= len(places)
	for i := range n {
		if len(others) > 0 {
			places = append(places, others[i*(len(others)-1)/max(1, n-1)])
		}
	}
	slices.Sort(places)
	for _, i := range slices.Compact(places) {
		chosen = append(chosen, r.Rows[i])
	}
	return chosen
}

// Coarse are the calls in flight in at most n steps: of many changes, the most in each stretch of time.
func (r Waterfall) Coarse(n int) []Level {
	steps := r.InFlight
	if len(steps) <= n {
		return steps
	}
	width := r.Elapsed/time.Duration(n-1) + 1
	var few []Level
	last := 0 // in flight at the end of the stretch before
	for i, at := 0, time.Duration(0); i < len(steps); at += width {
		most := last
		for ; i < len(steps) && steps[i].At < at+width; i++ {
			last = steps[i].N
			most = max(most, last)
		}
		few = append(few, Level{At: at, N: most})
	}
	return append(few, Level{At: few[len(few)-1].At + width, N: 0})
}
