package lab

import (
	"cachelab/app/events"
	"cachelab/app/herd"
)

// A Watcher is told what a mode does while it does it, as the terminal is. Its methods are called from many goroutines, on the
// way of what is measured: they must not block.
type Watcher interface {
	// Tell is an [events.Handler].
	Tell(events.Event)
	// Observe returns next, and watches the rounds and workers.
	Observe(next herd.Observer) herd.Observer
	// Keep is given each response, one at a time: that of a round after its end, that of traffic when it came.
	Keep(herd.Response)
}

// nobody watches.
type nobody struct{}

func (nobody) Tell(events.Event)                        {}
func (nobody) Observe(next herd.Observer) herd.Observer { return next }
func (nobody) Keep(herd.Response)                       {}

// watched is the view's handler, and the watcher's.
func (s *session) watched(view events.Handler) events.Handler {
	return func(e events.Event) {
		view(e)
		s.watcher.Tell(e)
	}
}
