package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// NewHandler serves the backend over HTTP, to processes of any number of runs:
//
//	GET /price?key=product:42:price&run=ID&ttl=3s   one call, answered as JSON
//	GET /runs/ID                                    what was counted of a run
//	GET /                                           what the service is like
//	GET /healthz                                    200 while it serves
//
// A call without a run belongs to the run "none". The TTL of a run's first call says what is repeated. The version is that of
// the program; spans, if not nil, flushes the spans of a run's calls and returns what became of them.
func NewHandler(runs *Runs, version string, spans func(ctx context.Context, run string) SpanCounts) http.Handler {
	h := handler{runs: runs, spans: spans}
	c := runs.Config()
	h.about = About{Service: ServiceName, Version: version, Machine: thisMachine(), Latency: c.Latency, Jitter: c.Jitter,
		Capacity: c.Capacity, Failures: c.Failures.String(), Seed: c.Seed}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathPrice, h.price)
	mux.HandleFunc("GET "+pathRuns+"{run}", h.run)
	mux.HandleFunc("GET "+pathHealth, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, h.about) })
	return mux
}

type handler struct {
	runs  *Runs
	about About
	spans func(context.Context, string) SpanCounts
}

// Bounds of what a request may hold.
const (
	maxKey = 4096
	maxRun = 256
)

func (h handler) price(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key, run, ttl := query.Get(paramKey), query.Get(paramRun), time.Duration(0)
	if run == "" {
		run = "none"
	}
	var err error
	if text := query.Get(paramTTL); text != "" {
		ttl, err = time.ParseDuration(text)
	}
	if err != nil || ttl < 0 || key == "" || len(key) > maxKey || len(run) > maxRun {
		writeJSON(w, http.StatusBadRequest, answer{Error: fmt.Sprintf("want %s?key=KEY, and run=ID and ttl=3s if there are: a key has 1 to %d bytes, a run at most %d",
			PathPrice, maxKey, maxRun)})
		return
	}
	value, call := h.runs.Serve(r.Context(), run, ttl, key)
	status := http.StatusOK
	switch {
	case errors.Is(call.Err, ErrTooManyRuns):
		status = http.StatusTooManyRequests
	case errors.Is(call.Err, ErrUnavailable):
		status = http.StatusInternalServerError
	case call.Err != nil:
		status = http.StatusServiceUnavailable // who asked has left, or the service ends
	}
	writeJSON(w, status, newAnswer(value, call))
}

func (h handler) run(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("run")
	service, known := h.runs.Find(id)
	if !known {
		writeJSON(w, http.StatusNotFound, answer{Error: fmt.Sprintf("no call of run %q", id)})
		return
	}
	report := service.Report(id)
	if h.spans != nil {
		spans := h.spans(r.Context(), id)
		report.Spans = &spans
	}
	writeJSON(w, http.StatusOK, report)
}

// Report returns what was counted of a run.
func (s *Service) Report(run string) Report {
	n := s.Stats()
	return Report{Run: run, Calls: n.Calls, InFlight: n.InFlight, Queued: n.Queued, Peak: n.Peak, Redundant: n.Redundant, Repeated: n.Repeated}
}
