package backend

import (
	"fmt"
	"sync"
	"time"
)

// Runs is one service that many runs share, of one process or of many: they queue for the same capacity, and each is
// counted on its own, from call 1. Of many runs, the one that has not been asked for the longest is forgotten. Use [NewRuns].
type Runs struct {
	config Config
	probe  func(run string) Probe
	slots  chan struct{}

	mu   sync.Mutex // guards all below
	runs map[string]*run
}

type run struct {
	service *Service
	calls   int // on their way
	used    time.Time
}

// maxRuns are remembered. A run takes some kilobytes, and 8 more bytes for each call.
const maxRuns = 100

// ErrTooManyRuns refuses a run while as many as are remembered have calls on their way.
var ErrTooManyRuns = fmt.Errorf("more than %d runs at once", maxRuns)

// NewRuns returns a service. Each run has the config, but for TTL, OnCall and Probe; probe makes that of a run, nil for none.
func NewRuns(config Config, probe func(run string) Probe) *Runs {
	if probe == nil {
		probe = func(string) Probe { return nil }
	}
	return &Runs{config: config, probe: probe, slots: newSlots(config.Capacity), runs: map[string]*run{}}
}

// Config returns what the service is like.
func (r *Runs) Config() Config { return r.config }

// Open returns the service as a run sees it, and begins the run if need be: its values are cached for ttl.
func (r *Runs) Open(id string, ttl time.Duration) (*Service, error) {
	one, err := r.enter(id, ttl)
	if err != nil {
		return nil, err
	}
	r.leave(one)
	return one.service, nil
}

// find returns the run, if it is known, and whether calls of it are on their way.
func (r *Runs) find(id string) (one *run, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one = r.runs[id]
	if one == nil {
		return nil, false
	}
	one.used = time.Now()
	return one, one.calls > 0
}

func (r *Runs) enter(id string, ttl time.Duration) (*run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.runs[id]
	if one == nil {
		if len(r.runs) >= maxRuns && !r.forget() {
			return nil, ErrTooManyRuns
		}
		config := r.config
		config.TTL, config.Probe = ttl, r.probe(id)
		one = &run{service: newService(config, r.slots)}
		r.runs[id] = one
	}
	one.calls++
	one.used = time.Now()
	return one, nil
}

// forget forgets the run that was asked for the longest ago, of those without a call on its way.
func (r *Runs) forget() bool {
	oldest := ""
	for id, one := range r.runs {
		if one.calls == 0 && (oldest == "" || one.used.Before(r.runs[oldest].used)) {
			oldest = id
		}
	}
	_, found := r.runs[oldest]
	delete(r.runs, oldest)
	return found
}

func (r *Runs) leave(one *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.calls--
	one.used = time.Now()
}
