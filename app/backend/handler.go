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
// A call without a run belongs to the run "none". The TTL of a run's first call says what is repeated.
func NewHandler(runs *Runs, config HandlerConfig) http.Handler {
	h := handler{runs: runs, spans: config.Spans, serve: http.HandlerFunc(serve)}
	if config.Trace != nil {
		h.serve = config.Trace(h.serve)
	}
	c := runs.Config()
	h.about = About{Service: ServiceName, Version: config.Version, Machine: thisMachine(), Latency: c.Latency, Jitter: c.Jitter,
		Capacity: c.Capacity, Failures: c.Failures.String(), Seed: c.Seed}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathPrice, h.price)
	mux.HandleFunc("GET "+pathRuns+"{run}", h.run)
	mux.HandleFunc("GET "+pathHealth, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, h.about) })
	return mux
}

// HandlerConfig is what the service is told by whoever runs it; the zero value will do.
type HandlerConfig struct {
	Version string // of the program
	// Trace, if set, puts calls into the traces of those who make them.
	Trace func(calls http.Handler) http.Handler
	// Spans, if set, flushes the spans of a run's calls, and returns what became of them.
	Spans func(ctx context.Context, run string) SpanCounts
}

type handler struct {
	runs  *Runs
	about About
	serve http.Handler
	spans func(context.Context, string) SpanCounts
}

// serving is a call that serve serves, in the request's context: the run counts it until its span has ended.
type serving struct {
	service *Service
	key     string
}

type servingKey struct{}

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
			pathPrice, maxKey, maxRun)})
		return
	}
	one, err := h.runs.enter(run, ttl)
	if err != nil {
		writeJSON(w, http.StatusTooManyRequests, answer{Error: err.Error()})
		return
	}
	defer h.runs.leave(one)
	h.serve.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), servingKey{}, serving{one.service, key})))
}

func serve(w http.ResponseWriter, r *http.Request) {
	s := r.Context().Value(servingKey{}).(serving)
	value, call := s.service.Serve(r.Context(), s.key)
	status := http.StatusOK
	switch {
	case errors.Is(call.Err, ErrUnavailable):
		status = http.StatusInternalServerError
	case call.Err != nil:
		status = http.StatusServiceUnavailable // who asked has left, or the service ends
	}
	writeJSON(w, status, newAnswer(value, call))
}

// leaving is how long calls may take whose callers have left, before their run is reported without them.
const leaving = time.Second

func (h handler) run(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("run")
	one, busy := h.runs.find(id)
	if one == nil {
		writeJSON(w, http.StatusNotFound, answer{Error: fmt.Sprintf("no call of run %q", id)})
		return
	}
	for began := time.Now(); busy && time.Since(began) < leaving && r.Context().Err() == nil; _, busy = h.runs.find(id) {
		time.Sleep(5 * time.Millisecond)
	}
	report := one.service.Report(id)
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
