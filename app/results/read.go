package results

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
)

// Read folds the files, whose lines may stand in any order, into the runs that they hold: one for each run and mode, in the order
// in which they began. The error names the file and the line that is wrong.
func Read(names ...string) ([]Folded, error) {
	r := reader{processes: map[string]*folding{}, runs: map[runKey]*Folded{}, ends: map[runKey]End{}}
	for _, name := range names {
		if err := r.readFile(name); err != nil {
			return nil, err
		}
	}
	return r.join()
}

// Folded is a run in one mode, as the files hold it.
type Folded struct {
	Start   Start
	Ledger  herd.Ledger
	Details facts.Details
}

// Run is what is told of it.
func (f Folded) Run() facts.Run { return facts.NewRun(f.Ledger, f.Details) }

// ErrIncomplete says that lines of a run are missing.
var ErrIncomplete = errors.New("the files do not hold the whole run")

// reader is what was read so far.
type reader struct {
	processes map[string]*folding
	runs      map[runKey]*Folded
	ends      map[runKey]End
}

type runKey struct{ run, mode string }

// folding is what the responses of one process come to.
type folding struct {
	fold   *herd.Fold
	series *herd.Series
	line   process // not there yet without a type
	where  string  // the first line that speaks of it
}

func (r *reader) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	defer file.Close()
	return r.read(file, name)
}

// read adds the lines in their order. They are decoded ahead of that, some at a time, by all processors.
func (r *reader) read(from io.Reader, name string) error {
	parts := make(chan chan []decodedLine, runtime.GOMAXPROCS(0))
	var readErr error
	go func() {
		defer close(parts)
		for in := bufio.NewReader(from); readErr == nil; {
			var lines [][]byte
			if lines, readErr = nextLines(in); len(lines) > 0 {
				part := make(chan []decodedLine, 1)
				parts <- part
				go func() { part <- decodeAll(lines) }()
			}
		}
	}()
	n, err := 0, error(nil)
	for part := range parts { // to the end, so that the reader ends
		for _, line := range <-part {
			if err != nil {
				break
			}
			n++
			where := func() string { return fmt.Sprintf("%s:%d", name, n) }
			if err = r.add(line, where); err != nil {
				err = fmt.Errorf("read the results: %s: %w", where(), err)
			}
		}
	}
	switch {
	case err != nil:
		return err
	case !errors.Is(readErr, io.EOF):
		return fmt.Errorf("read the results: %s:%d: %w", name, n+1, readErr)
	case n == 0:
		return fmt.Errorf("read the results: %s is empty", name)
	}
	return nil
}

// linesAtATime is enough that handing them over costs nothing.
const linesAtATime = 1000

// nextLines reads some lines. With an error, io.EOF too, they are the last.
func nextLines(in *bufio.Reader) (lines [][]byte, err error) {
	for len(lines) < linesAtATime && err == nil {
		var line []byte
		if line, err = in.ReadBytes('\n'); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	return lines, err
}

// decodedLine is a line, decoded as a response, which most of them are.
type decodedLine struct {
	text []byte
	response
	err error
}

func decodeAll(lines [][]byte) []decodedLine {
	all := make([]decodedLine, len(lines))
	for i, text := range lines {
		all[i].text = text
		all[i].err = json.Unmarshal(text, &all[i].response)
	}
	return all
}

// add adds a line.
func (r *reader) add(line decodedLine, where func() string) error {
	text := line.text
	if err := line.err; err != nil {
		if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) {
			return fmt.Errorf("no line of a results file, or one that is cut off: %w", err)
		}
		return fmt.Errorf("no line of a results file: %w", err)
	}
	switch line.Type {
	case typeResponse, typeWork:
		if err := line.check(); err != nil || line.Process == "" {
			return cmp.Or(err, errors.New("a response without its process"))
		}
		p, response := r.process(line.Process, where), line.response.response(epoch)
		p.fold.Add(response)
		p.series.Add(response)
		return nil
	case typeRun:
		return decoded(text, r.addRun)
	case typeProcess:
		return decoded(text, func(p process) error { return r.addProcess(p, where) })
	case typeEnd:
		return decoded(text, r.addEnd)
	}
	return fmt.Errorf("a line of type %q, which this version does not know", line.Type)
}

var outcomes = cache.Outcomes()

func decoded[T any](text []byte, add func(T) error) error {
	var line T
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	return add(line)
}

func (r *reader) process(id string, where func() string) *folding {
	p := r.processes[id]
	if p == nil {
		p = &folding{fold: herd.NewFold(0, 0), series: &herd.Series{}, where: where()}
		r.processes[id] = p
	}
	return p
}

func (r *reader) addRun(s Start) error {
	switch {
	case s.Format != format:
		return fmt.Errorf("format %d, and this version knows format %d", s.Format, format)
	case s.Run == "" || s.Mode == "" || s.Workers < 1 || s.TTL <= 0:
		return errors.New("a run without its id, mode, workers or TTL")
	}
	// Each process writes the line: it is the same.
	r.runs[runKey{s.Run, s.Mode}] = &Folded{Start: s}
	return nil
}

func (r *reader) addProcess(line process, where func() string) error {
	if line.Process == "" || line.Run == "" || line.Mode == "" {
		return errors.New("a process without its id, run or mode")
	}
	p := r.process(line.Process, where)
	if p.line.Type != "" {
		return fmt.Errorf("process %s is there twice: was a file given twice?", line.Process)
	}
	p.line = line
	return nil
}

func (r *reader) addEnd(e End) error {
	key := runKey{e.Run, e.Mode}
	if _, twice := r.ends[key]; twice {
		return fmt.Errorf("a second end of run %s, %s", e.Run, e.Mode)
	}
	r.ends[key] = e
	return nil
}

// join puts together what belongs together.
func (r *reader) join() ([]Folded, error) {
	folds := map[runKey]*herd.Fold{}
	for id, p := range r.processes {
		key := runKey{p.line.Run, p.line.Mode}
		run := r.runs[key]
		switch {
		case p.line.Type == "":
			return nil, fmt.Errorf("read the results: %s: %w: the line of process %s is in none of them", p.where, ErrIncomplete, id)
		case run == nil:
			return nil, fmt.Errorf("read the results: %s: %w: the line of run %s, %s is in none of them", p.where, ErrIncomplete, key.run, key.mode)
		}
		if folds[key] == nil {
			folds[key] = herd.NewFold(run.Start.Workers, run.Start.TTL)
			if p.line.Number > 0 && run.traffic() {
				folds[key].Across()
			}
		}
		later := p.line.Started.Sub(r.began(key))
		if p.line.Elsewhere {
			folds[key].JoinElsewhere(p.fold)
		} else {
			folds[key].Join(p.fold, later)
		}
		if run.Start.Scenario == modes.Gallery {
			run.join(p.series, later)
		}
	}
	var all []Folded
	for key, run := range r.runs {
		if folds[key] == nil {
			folds[key] = herd.NewFold(run.Start.Workers, run.Start.TTL)
		}
		end, ended := r.ends[key]
		run.finish(folds[key].Ledger(), end, ended)
		all = append(all, *run)
	}
	for key := range r.ends {
		if r.runs[key] == nil {
			return nil, fmt.Errorf("read the results: %w: the line of run %s, %s is in none of them", ErrIncomplete, key.run, key.mode)
		}
	}
	slices.SortFunc(all, func(a, b Folded) int {
		return cmp.Or(a.Details.Started.Compare(b.Details.Started), cmp.Compare(a.Details.ID, b.Details.ID), cmp.Compare(a.Details.Mode, b.Details.Mode))
	})
	return all, nil
}

// began is when the first process of a run did.
func (r *reader) began(key runKey) (first time.Time) {
	for _, p := range r.processes {
		if at := p.line.Started; p.line.Run == key.run && p.line.Mode == key.mode && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// traffic reports whether its rounds are each process's own.
func (f *Folded) traffic() bool {
	return facts.Run{Scenario: f.Start.Scenario}.Traffic() || f.Start.Rate > 0
}

// join adds what a process knows of the traffic, which began so much later than the first.
func (f *Folded) join(s *herd.Series, later time.Duration) {
	if f.Details.Series == nil {
		f.Details.Series = &herd.Series{TTL: f.Start.TTL}
	}
	f.Details.Series.Join(s, later)
}

// finish says what is told of the run. One that is not whole has no verdict.
func (f *Folded) finish(l herd.Ledger, e End, ended bool) {
	s := f.Start
	// What is neither in rounds nor waiting for the expiry is overhead.
	l.InRounds, l.Expiring = e.Duration-e.Overhead, 0
	l.NotSent, l.Spread = e.NotSent, e.Spread
	f.Ledger = l
	f.Details = facts.Details{ID: s.Run, Mode: s.Mode, Scenario: s.Scenario, Drill: s.Drill, Redis: s.Redis, Rate: s.Rate,
		BackendPeak: e.BackendPeak, PriceService: e.PriceService, RedisCommands: e.RedisCommands, Spans: e.Spans, TraceIDs: e.TraceIDs, Verdict: e.Verdict,
		Err: failure(e.Error), Started: e.Started, Duration: e.Duration, Series: f.Details.Series, Processes: e.Processes}
	missing := ""
	switch {
	case !ended:
		missing = "its end is"
	case l.Requests != e.Requests || l.Works != e.Works:
		there := e.Requests + e.Works
		missing = fmt.Sprintf("%d of %s are", there-l.Requests-l.Works, herd.Count(there, "response"))
	default:
		return
	}
	f.Details.Err = errors.Join(f.Details.Err, fmt.Errorf("%w: %s missing", ErrIncomplete, missing))
	f.Details.Verdict = herd.Verdict{Text: herd.Claim(l.BackendCalls, l.Expiries) + ": the run is not whole"}
	if !ended {
		f.Details.RedisCommands.Standing = "not available"
	}
}
