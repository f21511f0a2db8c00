package herd

import "time"

// Series is traffic as it went, beside the ledger. What it tells is the same in whatever order the responses come, and however
// those of several processes are split.
type Series struct {
	TTL     time.Duration
	samples []sample
	filled  time.Time // when the first fill was stored
}

// sample is a response, or a work.
type sample struct {
	began        time.Time // in open traffic, when the request was due
	latency, age time.Duration
	calls        int
	work         bool
}

// Step is a stretch of a series.
type Step struct {
	At      time.Duration `json:"at_ns"`      // when it begins, since the first request
	Calls   int           `json:"calls"`      // backend calls of what began in it
	Slowest time.Duration `json:"slowest_ns"` // latency of its requests
	Oldest  time.Duration `json:"oldest_ns"`  // age of the values that they were served; 0 if it is not known
}

// Add adds a response.
func (s *Series) Add(r Response) {
	one := sample{began: r.At.Add(-r.Elapsed), latency: r.Elapsed, calls: r.BackendCalls, work: r.Work != ""}
	if age, known := r.Age(); known {
		one.age = age
	}
	s.samples = append(s.samples, one)
	if r.SetsAbsent > 0 {
		s.fill(r.At)
	}
}

// Join adds the responses of another process, whose times are so much later than those of this series.
func (s *Series) Join(other *Series, later time.Duration) {
	for _, one := range other.samples {
		one.began = one.began.Add(later)
		s.samples = append(s.samples, one)
	}
	if !other.filled.IsZero() {
		s.fill(other.filled.Add(later))
	}
}

func (s *Series) fill(at time.Time) {
	if s.filled.IsZero() || at.Before(s.filled) {
		s.filled = at
	}
}

// CallsPerTTL is how many backend calls there were for each TTL, from the first fill on and without it, until the last request
// began: of what began before, all are part of the first cycle. It is 0 if there was no fill, or nothing after it.
func (s *Series) CallsPerTTL() float64 {
	calls := 0
	_, last := s.span()
	length := last.Sub(s.filled)
	for _, one := range s.samples {
		if !one.began.Before(s.filled) {
			calls += one.calls
		}
	}
	if s.filled.IsZero() || length <= 0 {
		return 0
	}
	return float64(calls) / (length.Seconds() / s.TTL.Seconds())
}

// Length is the time from the first request to the last.
func (s *Series) Length() time.Duration {
	first, last := s.span()
	return last.Sub(first)
}

// Steps are the series in stretches of a length. Those in which nothing began are left out.
func (s *Series) Steps(length time.Duration) (steps []Step) {
	first, last := s.span()
	all := make([]*Step, last.Sub(first)/length+1)
	for _, one := range s.samples {
		// What is done in the background may have begun after the last request.
		n := min(int(max(0, one.began.Sub(first))/length), len(all)-1)
		if all[n] == nil {
			all[n] = &Step{At: time.Duration(n) * length}
		}
		step := all[n]
		step.Calls += one.calls
		if !one.work {
			step.Slowest, step.Oldest = max(step.Slowest, one.latency), max(step.Oldest, one.age)
		}
	}
	for _, step := range all {
		if step != nil {
			steps = append(steps, *step)
		}
	}
	return steps
}

// span is when the first request began, and the last.
func (s *Series) span() (first, last time.Time) {
	for _, one := range s.samples {
		if one.work {
			continue
		}
		if first.IsZero() || one.began.Before(first) {
			first = one.began
		}
		if one.began.After(last) {
			last = one.began
		}
	}
	return first, last
}
