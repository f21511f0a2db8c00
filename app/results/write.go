package results

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"cachelab/app/facts"
	"cachelab/app/herd"
)

// Writer writes a results file, of one run or of several. Its methods may be called from several goroutines.
type Writer struct {
	mu   sync.Mutex // guards all below
	file *os.File
	out  *bufio.Writer
	json *json.Encoder
	err  error // the first; nothing is written after it
}

// Create returns a writer of a new file. The caller must Close it.
func Create(name string) (*Writer, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write the results: %w", err)
	}
	w := &Writer{file: file, out: bufio.NewWriterSize(file, 1<<20)}
	w.json = json.NewEncoder(w.out)
	w.json.SetEscapeHTML(false)
	return w, nil
}

// Close writes what is left. The error is the first of the whole file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if err := errors.Join(w.err, w.file.Close()); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func (w *Writer) line(what any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.json.Encode(what)
	}
}

// flush makes sure that what is there outlives the process.
func (w *Writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.out.Flush()
	}
}

// Process is a process of a run. Times of its responses are kept as they are from its start.
type Process struct {
	Number    int // from 1; 0 if the run has only one
	PID       int
	Host      string
	Started   time.Time
	Elsewhere bool // on another machine: its times cannot be held against those of the others
}

// This is this process, which begins now.
func This(number int) Process {
	host, _ := os.Hostname() // for people
	return Process{Number: number, PID: os.Getpid(), Host: host, Started: time.Now()}
}

// Run is a run in one mode, as this process writes it.
type Run struct {
	to        *Writer
	start     Start
	processes map[int]process // by number
	round     int             // of the last response
}

// Begin begins a run of these processes. Without a writer it returns nil, which keeps nothing.
func (w *Writer) Begin(s Start, processes ...Process) *Run {
	if w == nil {
		return nil
	}
	s.Type, s.Format = typeRun, format
	r := &Run{to: w, start: s, processes: map[int]process{}}
	w.line(s)
	for _, p := range processes {
		line := process{Type: typeProcess, Process: strings.ToLower(rand.Text()[:8]), Run: s.Run, Mode: s.Mode, Number: p.Number, PID: p.PID, Host: p.Host,
			Started: p.Started, Elsewhere: p.Elsewhere}
		r.processes[p.Number] = line
		w.line(line)
	}
	return r
}

// Keep writes a response of one of the processes. It is called with one at a time. What came before its round is in the file by
// then.
func (r *Run) Keep(response herd.Response) {
	if r == nil {
		return
	}
	if response.Worker.Round != r.round {
		r.round = response.Worker.Round
		r.to.flush()
	}
	p := r.processes[response.Worker.Process]
	r.to.line(newResponse(response, p.Process, p.Started))
}

// End ends the run, of which that much is told.
func (r *Run) End(l herd.Ledger, d facts.Details) {
	if r == nil {
		return
	}
	r.to.line(End{Type: typeEnd, Run: r.start.Run, Mode: r.start.Mode, Requests: l.Requests, Works: l.Works, NotSent: l.NotSent,
		Started: d.Started, Duration: d.Duration, Overhead: d.Duration - l.InRounds - l.Expiring,
		BackendPeak: d.BackendPeak, PriceService: d.PriceService, RedisCommands: d.RedisCommands, Spans: d.Spans, TraceIDs: d.TraceIDs, Verdict: d.Verdict, Error: text(d.Err),
		Spread: l.Spread, Processes: d.Processes})
}
