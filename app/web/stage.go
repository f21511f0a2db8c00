package web

import (
	"context"
	"errors"
	"sync"

	"cachelab/app/facts"
	"cachelab/app/page"
)

// ErrBusy says that a show goes on: there is one at a time.
var ErrBusy = errors.New("a run is going on: stop it first, or wait for its end")

// errStopped is why a run ends that a visitor stopped.
var errStopped = errors.New("stopped on the page")

// stage holds the show of the moment, or the last one, for all visitors. A show is a plan's runs.
type stage struct {
	ctx     context.Context // of the program
	program string          // names this start of the program
	running sync.WaitGroup

	mu      sync.Mutex // guards all below
	version int        // of what state returns
	number  int        // of the show
	choice  *Choice    // nil before the first show
	plan    Plan
	views   []*View                 // one for each run that has begun
	stop    context.CancelCauseFunc // nil while nothing runs
	stops   bool                    // it has been stopped, and is not over
	ended   *page.Page              // what the last show came to; nil before
	result  *page.Shown
}

// start starts a show, if none goes on.
func (s *stage) start(choice Choice, plan Plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return ErrBusy
	}
	ctx, stop := context.WithCancelCause(s.ctx)
	s.version++
	s.number++
	s.choice, s.plan, s.views, s.stop, s.stops, s.ended, s.result = &choice, plan, nil, stop, false, nil, nil
	s.running.Go(func() {
		p := plan.Run(ctx, s.watch)
		shown := p.Shown()
		s.mu.Lock()
		defer s.mu.Unlock()
		stop(nil)
		s.version++
		s.stop, s.ended, s.result = nil, &p, &shown
	})
	return nil
}

// watch returns what is told of the run of a mode.
func (s *stage) watch(mode string) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := 0
	for i, run := range s.plan.Runs {
		if run.Mode == mode {
			index = i
		}
	}
	s.version++
	v := newView(&s.plan, index, s.moved)
	s.views = append(s.views, v)
	return v
}

func (s *stage) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

// halt ends the show that goes on, if there is one. It ends in order: the run's locks are released.
func (s *stage) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil && !s.stops {
		s.version++
		s.stops = true
		s.stop(errStopped)
	}
}

// runs are those of the last show, when it is over.
func (s *stage) runs() (all []facts.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		return nil
	}
	for _, run := range s.ended.Runs {
		all = append(all, run.Run)
	}
	return all
}

// state is all that a visitor needs to know but for the pictures of the moment.
type state struct {
	Program   string      `json:"program"`
	Show      int         `json:"show"` // its number; 0 before the first
	Running   bool        `json:"running"`
	Stopping  bool        `json:"stopping"`
	Choice    *Choice     `json:"choice"`
	Command   string      `json:"command"`
	Warnings  []string    `json:"warnings"`
	Traffic   bool        `json:"traffic"`
	Workers   int         `json:"workers"`
	Processes int         `json:"processes"`
	Rounds    int         `json:"rounds"`
	TTL       int64       `json:"ttl_ns"`
	Each      int64       `json:"each_ns"`
	Runs      []runState  `json:"runs"`
	Error     string      `json:"error"`  // why the show ended early
	Result    *page.Shown `json:"result"` // when it is over
}

// runState is one of the show's runs.
type runState struct {
	Planned
	Begun bool      `json:"begun"`
	Facts facts.Run `json:"facts"` // what the rounds that are over came to
}

// state returns the state, its version, and the views of the runs that have begun. Without a newer version than the one that
// is known it returns no state.
func (s *stage) state(known int) (*state, int, []*View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == known {
		return nil, known, s.views
	}
	p := &s.plan
	now := &state{Program: s.program, Show: s.number, Running: s.stop != nil, Stopping: s.stop != nil && s.stops, Choice: s.choice,
		Command: p.Command, Warnings: p.Warnings, Traffic: p.Traffic, Workers: p.Workers, Processes: p.Processes, Rounds: p.Rounds, TTL: int64(p.TTL), Each: int64(p.Each),
		Runs: []runState{}, Result: s.result}
	for _, run := range p.Runs {
		now.Runs = append(now.Runs, runState{Planned: run})
	}
	for _, v := range s.views {
		so, begun := v.facts()
		now.Runs[v.index].Facts, now.Runs[v.index].Begun = so, begun
	}
	if s.ended != nil {
		now.Error = s.ended.Error
	}
	return now, s.version, s.views
}
