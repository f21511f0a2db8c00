package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// results are what is printed, drawn, and written as JSON.
type results struct {
	Go      string       `json:"go"`
	Redis   string       `json:"redis"`
	CPUs    int          `json:"cpus"`
	FillMS  float64      `json:"fill_ms"`
	Rounds  int          `json:"expiries"`
	Repeats int          `json:"repeats"`
	Peers   []peerResult `json:"peers"`
	Herds   []herdResult `json:"herds,omitempty"`
}

// peerResult is what has to do with no shape of a herd.
type peerResult struct {
	Name    string `json:"name"`
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	What    string `json:"what"`
	Lines   int    `json:"lines"` // of code to use it
	// TakeoverS is how long it took until somebody called when the winner had died; TakeoverErr says that nobody did.
	TakeoverS   *float64 `json:"takeover_s,omitempty"`
	TakeoverErr string   `json:"takeover_error,omitempty"`
	// FailureCalls are the calls of one expiry at which the backend fails, by 50 workers.
	FailureCalls *int `json:"failure_calls,omitempty"`
}

// herdResult is one peer under one herd. Times are in milliseconds, processor times in microseconds.
type herdResult struct {
	Peer     string `json:"peer"`
	Shape    string `json:"shape"`
	Expiries int    `json:"expiries"` // of all repeats
	Calls    spread `json:"calls_per_expiry"`
	P50      spread `json:"extra_p50_ms"`
	P99      spread `json:"extra_p99_ms"`
	Pooled   number `json:"extra_p99_pooled_ms"` // of the requests of all repeats
	Commands spread `json:"commands_per_request"`
	Bytes    spread `json:"bytes_per_request"`
	CPU      spread `json:"cpu_us_per_request"`
	RedisCPU spread `json:"redis_cpu_us_per_request"`
	Failed   int    `json:"failed"` // requests, of all repeats
	Requests int    `json:"requests"`
	Err      string `json:"error,omitempty"` // of the first that failed
}

// spread is the median of the repeats, the lowest, and the highest.
type spread struct {
	Median number `json:"median"`
	Min    number `json:"min"`
	Max    number `json:"max"`
}

// number is written with three decimals at most.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(int64(float64(n)*1000+0.5)) / 1000)
}

func spreadOf(samples []sample, of func(sample) float64) spread {
	var all []float64
	for _, s := range samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	median := (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	return spread{number(median), number(all[0]), number(all[len(all)-1])}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// summarize makes a herd's result of its repeats.
func summarize(p peer, s shape, samples []sample) herdResult {
	r := herdResult{
		Peer:     p.name,
		Shape:    s.String(),
		Calls:    spreadOf(samples, func(s sample) float64 { return s.calls }),
		P50:      spreadOf(samples, func(s sample) float64 { return milliseconds(s.p50) }),
		P99:      spreadOf(samples, func(s sample) float64 { return milliseconds(s.p99) }),
		Commands: spreadOf(samples, func(s sample) float64 { return s.commands }),
		Bytes:    spreadOf(samples, func(s sample) float64 { return s.bytes }),
		CPU:      spreadOf(samples, func(s sample) float64 { return microseconds(s.cpu) }),
		RedisCPU: spreadOf(samples, func(s sample) float64 { return microseconds(s.redisCPU) }),
	}
	var pooled []time.Duration
	for _, s := range samples {
		pooled = append(pooled, s.extra...)
		r.Expiries += s.expiries
		r.Failed += s.failed
		if r.Err == "" {
			r.Err = s.err
		}
	}
	r.Requests = len(pooled) + r.Failed
	r.Pooled = number(milliseconds(quantile(pooled, 0.99)))
	return r
}

// run measures all of the plan. The peers take turns, so that what else the machine does meets all of them alike; progress is told of
// each step.
func (m *measurer) run(ctx context.Context, progress func(string)) (results, error) {
	r := results{Go: runtime.Version(), CPUs: runtime.NumCPU(), FillMS: milliseconds(m.fill), Rounds: m.rounds, Repeats: m.repeats}
	var err error
	if r.Redis, err = m.keeper.version(ctx); err != nil {
		return r, err
	}
	for _, p := range m.peers {
		one, err := m.alone(ctx, p, progress)
		if err != nil {
			return r, err
		}
		r.Peers = append(r.Peers, one)
	}
	if !slices.Contains(m.parts, partHerd) {
		return r, nil
	}
	samples := map[string][]sample{}
	for n := range m.repeats {
		for _, s := range m.shapes {
			for i := range m.peers {
				p := m.peers[(i+n)%len(m.peers)]
				progress(fmt.Sprintf("repeat %d of %d, %s, %s", n+1, m.repeats, s, p.name))
				one, err := m.herd(ctx, p, s)
				if err != nil {
					return r, err
				}
				samples[p.name+s.String()] = append(samples[p.name+s.String()], one)
			}
		}
	}
	for _, s := range m.shapes {
		for _, p := range m.peers {
			r.Herds = append(r.Herds, summarize(p, s, samples[p.name+s.String()]))
		}
	}
	return r, nil
}

// alone measures what has to do with no shape.
func (m *measurer) alone(ctx context.Context, p peer, progress func(string)) (r peerResult, err error) {
	r = peerResult{Name: p.name, Module: p.module, Version: version(p.module), What: p.what}
	if r.Lines, err = linesOfUse(p); err != nil {
		return r, err
	}
	if slices.Contains(m.parts, partDeath) {
		progress("death of the winner, " + p.name)
		takeover, err := m.death(ctx, p)
		switch {
		case errors.Is(err, errNobody):
			r.TakeoverErr = errNobody.Error()
		case err != nil:
			return r, err
		default:
			seconds := takeover.Round(time.Millisecond).Seconds()
			r.TakeoverS = &seconds
		}
	}
	if slices.Contains(m.parts, partFailure) {
		progress("failing backend, " + p.name)
		calls, err := m.failure(ctx, p)
		if err != nil {
			return r, err
		}
		r.FailureCalls = &calls
	}
	return r, nil
}

// version is that of a module in this program.
func version(module string) string {
	about, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, d := range about.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return ""
}

// save writes the results as JSON.
func (r results) save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
