package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"cachelab/app/cache"
)

// plan is what to measure.
type plan struct {
	peers   []peer
	shapes  []shape
	parts   []string
	repeats int
	rounds  int
	fill    time.Duration
}

// shape is a herd: so many processes, with so many workers each.
type shape struct{ processes, workers int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.processes, s.workers) }

// The parts of a measurement.
const (
	partHerd    = "herd"    // the price of an expiry
	partDeath   = "death"   // of the process that fills
	partFailure = "failure" // of the backend
)

func allParts() []string { return []string{partHerd, partDeath, partFailure} }

// ttl is so long that nothing expires by itself. The keeper makes keys expire.
const ttl = time.Minute

// measurer measures on one Redis.
type measurer struct {
	plan
	redis  string
	keeper *keeper
}

func (m *measurer) job(p peer, workers, rounds int) job {
	return job{Peer: p.name, Redis: m.redis, Workers: workers, Rounds: rounds, Fill: m.fill, TTL: ttl}
}

// sample is what the expiries of one repeat came to.
type sample struct {
	expiries int
	calls    float64 // of the backend, for each expiry
	p50, p99 time.Duration
	commands float64 // that Redis executed, for each request
	bytes    float64 // over the wire, both ways
	cpu      time.Duration
	redisCPU time.Duration
	failed   int
	err      string // of the first that failed

	extra []time.Duration // of all requests: from the first one's release to its answer, less the fill
}

// herd measures one repeat of one peer. The first herd is not counted: it opens the connections. The last is never released: a process
// that leaves takes processor time from those whose answers are on their way.
func (m *measurer) herd(ctx context.Context, p peer, s shape) (_ sample, err error) {
	defer inside(&err, p, s.String())
	g, err := start(ctx, s.processes, m.job(p, s.workers, m.rounds+2))
	if err != nil {
		return sample{}, err
	}
	defer g.end()
	warm, err := m.round(ctx, g)
	if err != nil {
		return sample{}, err
	}
	if err := m.keeper.expire(ctx); err != nil {
		return sample{}, err
	}
	before, err := m.keeper.census(ctx)
	if err != nil {
		return sample{}, err
	}
	var all sample
	var last report
	for began := time.Now(); all.expiries < m.rounds && time.Since(began) < enough; all.expiries++ {
		if last, err = m.round(ctx, g); err != nil {
			return all, err
		}
		all.extra = append(all.extra, extra(last.Answers, m.fill)...)
		all.failed += last.Failed
		if all.err == "" {
			all.err = last.Err
		}
	}
	if err := m.keeper.expire(ctx); err != nil { // what is stored in the background counts, too
		return all, err
	}
	after, err := m.keeper.census(ctx)
	if err != nil {
		return all, err
	}
	requests := all.expiries * s.processes * s.workers
	spent := after.since(before)
	all.calls = float64(last.Calls-warm.Calls) / float64(all.expiries)
	all.commands = float64(spent.commands) / float64(requests)
	all.bytes = float64(spent.bytes) / float64(requests)
	all.cpu = (last.CPU - warm.CPU) / time.Duration(requests)
	all.redisCPU = spent.cpu / time.Duration(requests)
	all.p50, all.p99 = quantile(all.extra, 0.50), quantile(all.extra, 0.99)
	return all, nil
}

// enough ends a repeat after the herd that is on its way: with two of the peers a herd takes seconds.
const enough = 15 * time.Second

func (m *measurer) round(ctx context.Context, g group) (report, error) {
	if err := m.keeper.expire(ctx); err != nil {
		return report{}, err
	}
	if err := g.release(); err != nil {
		return report{}, err
	}
	return g.gather(ctx)
}

// extra is how much longer than one fill each request took, from the moment on when the first one was released.
func extra(answers []answer, fill time.Duration) (all []time.Duration) {
	if len(answers) == 0 {
		return nil
	}
	first := slices.MinFunc(answers, func(a, b answer) int { return int(a.Released - b.Released) }).Released
	for _, a := range answers {
		all = append(all, time.Duration(a.At-first)*time.Microsecond-fill)
	}
	return all
}

// quantile is the nearest rank, 0 of none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

const (
	deathWorkers  = 10
	deathPatience = 30 * time.Second
)

// death kills the process whose call is the first one in flight, and returns how long it takes until the other one calls: 0 when it had
// called, too. Whoever gets an error asks again. The herd before it opens the connections.
func (m *measurer) death(ctx context.Context, p peer) (_ time.Duration, err error) {
	defer inside(&err, p, "death of the winner")
	j := m.job(p, deathWorkers, 1000)
	j.Tell = true
	g, err := start(ctx, 2, j)
	if err != nil {
		return 0, err
	}
	defer g.end()
	if _, err := m.round(ctx, g); err != nil {
		return 0, err
	}
	if err := errors.Join(m.keeper.expire(ctx), g.release()); err != nil {
		return 0, err
	}
	winner, other := g[0], g[1]
	select {
	case <-winner.reports: // that a call began
	case <-other.reports:
		winner, other = other, winner
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := cache.Sleep(ctx, m.fill/2); err != nil {
		return 0, err
	}
	if err := winner.kill(); err != nil {
		return 0, err
	}
	killed := time.Now()
	limit := time.After(deathPatience)
	for {
		select {
		case r, ok := <-other.reports:
			switch {
			case !ok:
				return 0, errors.New("the other process ended as well")
			case !r.Began.IsZero():
				return max(0, r.Began.Sub(killed)), nil
			}
			if err := other.release(); err != nil { // they ask again
				return 0, err
			}
		case <-limit:
			return 0, errNobody
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// errNobody says that nobody took over in time.
var errNobody = fmt.Errorf("nobody took over within %v", deathPatience)

const failureWorkers = 50

// failure returns how many calls the expiry costs at which the backend fails, whoever asks it.
func (m *measurer) failure(ctx context.Context, p peer) (calls int, err error) {
	defer inside(&err, p, "failing backend")
	j := m.job(p, failureWorkers, 2)
	j.Fails, j.Fill = true, failureFill
	g, err := start(ctx, 1, j)
	if err != nil {
		return 0, err
	}
	defer g.end()
	before, err := m.round(ctx, g)
	if err != nil {
		return 0, err
	}
	after, err := m.round(ctx, g)
	return after.Calls - before.Calls, err
}

// failureFill is short: some ask one after the other.
const failureFill = 50 * time.Millisecond

func inside(err *error, p peer, what string) {
	if *err != nil {
		*err = fmt.Errorf("%s, %s: %w", p.name, what, *err)
	}
}
