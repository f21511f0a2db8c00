package web

import (
	"context"
	"time"

	"cachelab/app/page"
)

// Form is what a visitor can choose from.
type Form struct {
	Strategies []Strategy `json:"strategies"`
	Kinds      []Kind     `json:"kinds"` // rounds, traffic, and the drills
	Most       int        `json:"most"`  // strategies in one show
	Version    string     `json:"version"`
}

// Strategy is a mode of the lab.
type Strategy struct {
	Name    string `json:"name"`
	Short   string `json:"short"` // a line: what it does
	Color   string `json:"color"` // #rrggbb
	Traffic bool   `json:"traffic,omitempty"`
}

// Kind is a kind of show: rounds, traffic or a drill, with the settings that it has.
type Kind struct {
	Name     string  `json:"name"`
	Short    string  `json:"short"`
	Strategy string  `json:"strategy,omitempty"` // of a drill: its own one
	Fields   []Field `json:"fields"`
}

// Field is one setting, as the command line knows it.
type Field struct {
	Name    string `json:"name"`
	Usage   string `json:"usage"`
	Value   string `json:"value"` // unless the visitor wants another
	Want    string `json:"want"`  // which values are accepted, in words
	Boolean bool   `json:"boolean,omitempty"`
	Seldom  bool   `json:"seldom,omitempty"` // to be found among the others
}

// Choice is what a visitor wants to see.
type Choice struct {
	Kind       string            `json:"kind"`
	Strategies []string          `json:"strategies"` // in their order; none for a drill
	Settings   map[string]string `json:"settings"`   // by the field's name
}

// Fault is one thing that is wrong with a choice.
type Fault struct {
	Field string `json:"field"` // its name; "strategies" or "kind" if it is of these
	Text  string `json:"text"`
}

// Plan is a choice that can be shown.
type Plan struct {
	Command  string    // that makes the same in a terminal
	Warnings []string  // the rules that it breaks, which is allowed
	Runs     []Planned // one after the other
	Traffic  bool      // requests that come on their own, not in rounds
	Workers  int
	// Processes are those that the workers are in; 0 if they are in this one. The steps of others are not told here.
	Processes int
	Rounds    int
	Capacity  int           // backend calls that run at once; 0 for no limit
	TTL       time.Duration // how long a value is fresh
	LockTTL   time.Duration
	Each      time.Duration // of traffic: how long that of one strategy lasts
	// Run makes the runs, and returns what there is of them when they are over, or ctx has ended. Of each run watch makes what it
	// must be told to.
	Run func(ctx context.Context, watch func(mode string) *View) page.Page
}

// Planned is a run of a plan.
type Planned struct {
	Mode  string `json:"mode"`
	Color string `json:"color"`
	About string `json:"about"`
	Locks bool   `json:"locks"` // takes the fill lock
	Grace bool   `json:"grace"` // keeps values beyond their TTL
}
