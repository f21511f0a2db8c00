// Package modes is the table of strategies: what the lab can run, how each is called and drawn, and what it promises.
// The table is a value. Whoever shows modes walks over it, so that a new strategy is one file in app/cache and one entry
// here.
package modes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// Mode is a strategy as a user chooses it.
type Mode struct {
	Name  string // one word: the command, and the attribute "mode"
	Short string // a line: what it does
	Long  string // for --help
	See   string // a line: what to look for in its graphs
	Good  string // a line: what it is good for
	Costs string // a line: what it costs
	// Color is #rrggbb, of Okabe and Ito's palette, which people with any colour vision can tell apart
	// (https://jfly.uni-koeln.de/color/).
	Color string
	// Locks says that the strategy needs the fill lock: its TTL and the wait timeout.
	Locks bool
	// Rings says that its winner PUBLISHes on the lock's channel, and that who waits listens there.
	Rings bool
	// OneSlot says that it names key and fill lock in one command: in a cluster both must be in one slot.
	OneSlot bool
	// Traffic says that its promise needs traffic: asked for in rounds it says so.
	Traffic bool
	// Grace says that it keeps values beyond their TTL, for the grace time.
	Grace bool
	New   func(Parts) cache.Strategy
	// Judge checks the promise.
	Judge herd.Judge
	// Except are the promises of cachetest's suite that it does not keep, by name, and why.
	Except map[string]string
}

// Parts are what a strategy is made of.
type Parts struct {
	cache.Aside
	Lock        cache.FillLock
	Listener    cache.Listener
	WaitTimeout time.Duration
	Ahead
}

// Ahead is what the strategies need that refresh before the expiry.
type Ahead struct {
	// Delta tells how long the fill of a value took.
	Delta     func(value string) (delta time.Duration, known bool)
	Beta      float64       // of early: above 1 it refreshes earlier
	EarlyLock bool          // false for early's plain form, without the fill lock
	Grace     time.Duration // of stale
}

// Table lists modes in the order in which they are shown.
type Table []Mode

// All returns the lab's own table.
func All() Table { return Table{broken(), fixed(), coalesced(), woken(), early(), stale()} }

func broken() Mode {
	return Mode{
		Name:  "broken",
		Short: "every worker that misses calls the backend: the thundering herd",
		Long: `Naive cache-aside: GET; on a miss, call the backend and SET. When the key expires, all workers miss at the
same moment and all of them call. With 50 workers and 5 rounds that is 250 backend calls where 5 would do.
The backend answers 10 calls at once, so the herd also queues: look at the latency.`,
		See:   "a wall of backend calls at each expiry, as high as there are workers",
		Good:  "keys that are seldom asked for, in front of a backend that does not mind",
		Costs: "a backend call for each request that misses, and their queue: the whole herd waits longer than for one fill",
		Color: "#D55E00",
		New:   func(p Parts) cache.Strategy { return &cache.Broken{Aside: p.Aside} },
		Judge: herd.JudgeHerd,
		Except: map[string]string{
			"one call however many callers":                       "whoever misses calls: that is the herd",
			"one call however many processes":                     "whoever misses calls",
			"a dead winner costs one take-over":                   "there is no lock to take over",
			"a late winner: a value in each cycle, calls bounded": "there is no bound",
			"an error is shared":                                  "each has its own call, and error",
		},
	}
}

func fixed() Mode {
	return Mode{
		Name:  "fixed",
		Short: "one worker fills under a lock, the others wait",
		Long: `GET; on a miss, SET KEY:filling TOKEN NX GET PX. One worker gets the lock, looks once more (somebody may
have filled in between), calls the backend, SETs the value and gives the lock back with a compare-and-delete.
The others wait with growing, jittered pauses and retry GET. Nobody calls the backend without the lock.`,
		See:   "a single backend call at each expiry; the others wait for it",
		Good:  "a backend that must not be asked twice, by however many processes, and values that are never older than the TTL",
		Costs: "at each expiry all wait for a fill and some 20 ms more, with about 12 Redis commands for each: they poll",
		Color: "#009E73",
		Locks: true,
		New: func(p Parts) cache.Strategy {
			return &cache.Fixed{Aside: p.Aside, Lock: p.Lock, WaitTimeout: p.WaitTimeout}
		},
		Judge: herd.JudgeSingleFill,
		Except: map[string]string{
			"an error is shared": "the next waiter tries again",
		},
	}
}

func coalesced() Mode {
	return Mode{
		Name:  "coalesced",
		Short: "the callers in one process share one flight: GET, backend call, SET",
		Long: `The callers of a key in one process share one flight: the first one's GET, backend call and SET answer all of
them. There is no lock in Redis, so each process calls the backend once at each expiry. An error reaches all
callers and is not remembered; a caller that leaves does not end the flight.`,
		See:   "a single backend call at each expiry, and hardly a Redis command",
		Good:  "one process, or few: nothing to run, nothing to wait for, no lock to lose",
		Costs: "a backend call for each process at each expiry; an error is everybody's",
		Color: "#CC79A7",
		New: func(p Parts) cache.Strategy {
			return &cache.Coalesced{Aside: p.Aside, Limit: p.WaitTimeout}
		},
		Judge: herd.JudgeEachProcess,
		Except: map[string]string{
			"one call however many processes":   "processes know nothing of each other",
			"a dead winner costs one take-over": "there is no lock to take over",
		},
	}
}

func woken() Mode {
	return Mode{
		Name:  "woken",
		Short: "flights share the fill lock, and the winner wakes the others by a message",
		Long: `As coalesced, and the flights of all processes share the fill lock of fixed. The winner stores and releases in
one script and PUBLISHes on a channel that has the lock's name. Flights that lost the lock listen there instead
of polling. The message is only a hint: GET decides, and without a message flights look every 500 ms.`,
		See:     "a single backend call at each expiry, however many processes; the others are woken, and do not poll",
		Good:    "many processes with many callers each: one call for all, and a wait that ends with the fill",
		Costs:   "a subscription for each process; a message that is lost costs half a second",
		Color:   "#0072B2",
		Locks:   true,
		Rings:   true,
		OneSlot: true,
		New: func(p Parts) cache.Strategy {
			return &cache.Woken{Aside: p.Aside, Listener: p.Listener, Lock: p.Lock, WaitTimeout: p.WaitTimeout}
		},
		Judge: herd.JudgeRings(herd.JudgeSingleFill),
	}
}

// InRounds are those whose promise can be seen in rounds.
func (t Table) InRounds() Table {
	return slices.DeleteFunc(slices.Clone(t), func(m Mode) bool { return m.Traffic })
}

// Names lists the names.
func (t Table) Names() []string {
	var names []string
	for _, m := range t {
		names = append(names, m.Name)
	}
	return names
}

// Find returns the mode of that name. The error names those that there are.
func (t Table) Find(name string) (Mode, error) {
	at := slices.IndexFunc(t, func(m Mode) bool { return m.Name == name })
	if at < 0 {
		return Mode{}, fmt.Errorf("there is no mode %q: want %s", name, Or(t.Names()))
	}
	return t[at], nil
}

// Or is "a", "a or b", "a, b or c".
func Or(words []string) string { return enumeration(words, " or ") }

// And is "a", "a and b", "a, b and c".
func And(words []string) string { return enumeration(words, " and ") }

func enumeration(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + last + words[n]
}
