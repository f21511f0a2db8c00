// Package web is the lab in a browser: a page with a button, served to whoever is on this machine. It shows one run at a time to
// all visitors, while it goes on. The numbers are the run's ledger; what is drawn meanwhile is made of its steps.
package web

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"time"

	"cachelab/app/facts"
	"cachelab/app/page"
)

// Server serves the page. Make one with [New].
type Server struct {
	form Form
	plan func(Choice) (Plan, []Fault)

	stage    stage
	visitors chan struct{} // a place for each
	closing  chan struct{} // closed when the feeds must end
}

// New returns a server of a form. The function makes a plan of a choice, or says all that is wrong with it.
func New(form Form, plan func(Choice) (Plan, []Fault)) *Server {
	return &Server{form: form, plan: plan, stage: stage{program: rand.Text()}, visitors: make(chan struct{}, maxVisitors), closing: make(chan struct{})}
}

// Serve serves until ctx ends. A run that goes on then ends in order before Serve returns.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	s.stage.ctx = ctx
	server := &http.Server{Handler: guard(s.routes(), listener.Addr()), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the page: %w", err)
	case <-ctx.Done():
	}
	s.stage.running.Wait()
	close(s.closing)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("end the page: %w", err), server.Close())
	}
	return nil
}

//go:embed live.html live.css live.js form.js
var files embed.FS

var livePage = template.Must(template.ParseFS(files, "live.html"))

func (s *Server) routes() http.Handler {
	script, style := page.Renderer()
	static := http.NewServeMux()
	mux := http.NewServeMux()
	mux.Handle("GET /", static)
	static.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = livePage.Execute(w, s.form) // who has gone need not be told
	})
	text := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write([]byte(text))
		}
	}
	static.Handle("GET /page.js", text("text/javascript", script))
	static.Handle("GET /page.css", text("text/css", style))
	for name, kind := range map[string]string{"live.js": "text/javascript", "form.js": "text/javascript", "live.css": "text/css"} {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // it is embedded
		}
		static.Handle("GET /"+name, text(kind, string(content)))
	}
	mux.HandleFunc("GET /feed", s.feed)
	mux.HandleFunc("GET /runs.json", s.runs)
	mux.HandleFunc("POST /check", s.check)
	mux.HandleFunc("POST /start", s.start)
	mux.HandleFunc("POST /stop", s.stop)
	return mux
}

// runs answers with the JSON of the last show's runs: the same as --json writes.
func (s *Server) runs(w http.ResponseWriter, _ *http.Request) {
	runs := s.stage.runs()
	if runs == nil {
		http.Error(w, "no run is over", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = facts.WriteJSON(w, runs)
}

// checked is what there is to say of a choice.
type checked struct {
	Command  string   `json:"command"`
	Warnings []string `json:"warnings"`
	Faults   []Fault  `json:"faults"`
}

// check says what a choice comes to, and starts nothing.
func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	if choice, ok := read[Choice](w, r); ok {
		plan, faults := s.plan(choice)
		answer(w, http.StatusOK, checked{plan.Command, plan.Warnings, faults})
	}
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	choice, ok := read[Choice](w, r)
	if !ok {
		return
	}
	plan, faults := s.plan(choice)
	if len(faults) > 0 {
		answer(w, http.StatusUnprocessableEntity, checked{Faults: faults})
		return
	}
	if err := s.stage.start(choice, plan); err != nil {
		answer(w, http.StatusConflict, checked{Faults: []Fault{{Text: err.Error()}}})
		return
	}
	answer(w, http.StatusAccepted, checked{Command: plan.Command, Warnings: plan.Warnings})
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	if _, ok := read[struct{}](w, r); ok {
		s.stage.halt()
		answer(w, http.StatusAccepted, struct{}{})
	}
}

// maxBody is more than any choice needs.
const maxBody = 16 << 10

// read reads a JSON body, and says what is wrong with it. A form of another site cannot send this type.
func read[T any](w http.ResponseWriter, r *http.Request) (value T, ok bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		http.Error(w, "want Content-Type application/json", http.StatusUnsupportedMediaType)
		return value, false
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		http.Error(w, "read the request: "+err.Error(), http.StatusBadRequest)
		return value, false
	}
	return value, true
}

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what)
}
