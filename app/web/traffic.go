package web

import (
	"maps"
	"slices"
	"time"

	"cachelab/app/herd"
)

const (
	window  = 30 * time.Second // of traffic that is drawn
	stretch = 500 * time.Millisecond
)

// traffic is what came in the last 30 s, in the form in which a whole gallery is drawn: see [herd.Series].
type traffic struct {
	began  time.Time          // the first request's start
	all    map[int]*herd.Step // by the number of the stretch
	newest int
}

func (t *traffic) add(r herd.Response) {
	began := r.At.Add(-r.Elapsed)
	if t.all == nil {
		t.began, t.all = began, map[int]*herd.Step{}
	}
	// A request may have begun before the first that was answered.
	n := int(max(0, began.Sub(t.began)) / stretch)
	t.newest = max(t.newest, n)
	step := t.all[n]
	if step == nil {
		step = &herd.Step{}
		t.all[n] = step
		// What is too old goes: this one, too, if it comes late.
		maps.DeleteFunc(t.all, func(n int, _ *herd.Step) bool { return n < t.oldest() })
	}
	step.Calls += r.BackendCalls
	if r.Work == "" {
		age, _ := r.Age()
		step.Slowest, step.Oldest = max(step.Slowest, r.Elapsed), max(step.Oldest, age)
	}
}

// oldest is the first stretch of the window.
func (t *traffic) oldest() int { return max(0, t.newest+1-int(window/stretch)) }

// steps are the window, from its begin.
func (t *traffic) steps() []herd.Step {
	steps := []herd.Step{}
	for _, n := range slices.Sorted(maps.Keys(t.all)) {
		step := *t.all[n]
		step.At = time.Duration(n-t.oldest()) * stretch
		steps = append(steps, step)
	}
	return steps
}
