package lab

import (
	"time"

	"cachelab/app/cache"
	"cachelab/app/drill"
	"cachelab/app/herd"
)

// Mode is a strategy as the user chooses it, with what it promises.
type Mode struct {
	Name string
	New  func(cache.Aside, cache.FillLock, time.Duration) cache.Strategy
	// Judge checks the promise.
	Judge herd.Judge
	// Locks says that the strategy uses the fill lock.
	Locks bool
	// Drill is what is made to fail, and replaces Judge; nil for none.
	Drill *drill.Drill
}

// Broken is the mode without protection.
func Broken() Mode { return Mode{Name: "broken", New: newBroken, Judge: herd.JudgeHerd} }

// Fixed is the mode with the fill lock.
func Fixed() Mode {
	return Mode{Name: "fixed", New: newFixed, Judge: herd.JudgeSingleFill, Locks: true}
}

// Load is Fixed with a larger herd, told apart by its name.
func Load() Mode {
	m := Fixed()
	m.Name = "load"
	return m
}

func newBroken(a cache.Aside, _ cache.FillLock, _ time.Duration) cache.Strategy {
	return &cache.Broken{Aside: a}
}

func newFixed(a cache.Aside, l cache.FillLock, waitTimeout time.Duration) cache.Strategy {
	return &cache.Fixed{Aside: a, Lock: l, WaitTimeout: waitTimeout}
}
