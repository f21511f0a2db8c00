// Package drill breaks a strategy on purpose, mostly the fix, to show what it stands and where its rules come from. Each fault
// is a decorator of the store, the backend or the strategy; the strategies have no switch for it.
package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// Drill is a run with one injected fault, and what is expected of it.
type Drill struct {
	Name  string
	Short string // a line: the fault and what to expect
	Long  string
	// Mode is the name of the strategy; "" is the fix's.
	Mode string
	// Traffic says that requests come one by one, not in rounds: "rate" and "for" are among the Settings, and rounds are not.
	Traffic bool
	// Settings are the defaults of the run's flags where they differ, by the flag's name and as the user would
	// write them. Without traffic "rounds" is always among them: each round has its part in the drill.
	Settings map[string]string
	// AnyRounds says that more or fewer rounds make sense.
	AnyRounds bool
	// Owns says which Redis the drill has of its own, as it stops, empties or changes it.
	Owns Servers
	// Start returns the drill's faults for one run; see [Drill.Begin].
	Start func(Scene) Faults
}

// Servers are the Redis that a drill has of its own.
type Servers string

// What a drill may own. Without a redis-server on the machine there is only the embedded one, in the place of One.
const (
	Nothing Servers = ""
	One     Servers = "a Redis"
	Pair    Servers = "a master and a replica"
	Cluster Servers = "a cluster of three nodes"
)

// All lists the drills, in the order in which "drill all" runs them.
func All() []Drill {
	return []Drill{coldStart(), slowFill(), backendError(), cancelledWinner(), deadWinner(), lostRedis(), manyKeys(), noRecheck(),
		lostMessage(), slowFillWoken(), slowFillEarly(), slowFillStale(), earlyUnlocked(), flush(), failover(), slotMove()}
}

// Scene is what a drill gets from its run.
type Scene struct {
	Workers   int
	Rounds    int
	Key       string
	TTLJitter float64
	ValueTTL  time.Duration // how long a value is fresh
	LockTTL   time.Duration
	Latency   time.Duration // of a backend call
	Beta      float64       // of early
	// Report tells of a fault at the moment when it happens: a line, and an event on the span in ctx.
	Report func(ctx context.Context, text string)
	// TTL returns how long key will live, 0 if it is absent. It is no part of what is counted.
	TTL func(ctx context.Context, key string) (time.Duration, error)
	// Redis is the drill's own server, if it owns One.
	Redis Server
	// Replica is that of the drill's own Pair.
	Replica Replica
	// MoveSlot moves the slot of key to another node of the drill's own Cluster, and says from where to where. Halfway it calls
	// halfway.
	MoveSlot func(ctx context.Context, key string, halfway func()) (from, to string, err error)
	// SentOn returns how many of the workers' commands a node of a cluster has sent on to another so far.
	SentOn func() int
	// Flush empties that server.
	Flush func(ctx context.Context) error

	// For a worker that is another process:

	// Winner starts a process with one worker, which is [Doomed] and asks for the key.
	Winner func(ctx context.Context) (Winner, error)
	// Step tells of a step that it reported, and why it failed; of its backend call twice, the first time without
	// an end.
	Step     func(ctx context.Context, s Step, err error)
	Probe    cache.Probe
	NewToken func(ctx context.Context) string
}

// Server is a Redis that can be stopped, and started again, empty, at the same address.
type Server interface {
	Stop() error
	Start(ctx context.Context) error
}

// Replica is the replica of a master.
type Replica interface {
	// CutOff keeps from it what its master is told from now on.
	CutOff(ctx context.Context) error
	// FailOver makes it the master, and kills the one that was.
	FailOver(ctx context.Context) error
}

// Faults are the decorators of one run.
type Faults struct {
	Store  func(cache.Store) cache.Store   // inside of what is observed
	Loader func(cache.Loader) cache.Loader // likewise
	// Strategy is given what makes the run's strategy with a TTL jitter, and the jitter of the run.
	Strategy func(make func(ttlJitter float64) cache.Strategy, ttlJitter float64) cache.Strategy
	Judge    herd.Judge
	// Masked returns how many re-checks found the value and were answered with a miss: Redis knows them as hits. Nil: none.
	Masked func() int
	// Close waits for what the drill started. The error is a fault of the machine, not of the strategy.
	Close func() error
}

// None is a run without faults, and its judge.
func None(judge herd.Judge) Faults { return Faults{Judge: judge}.whole() }

// Begin starts the drill's faults for one run. Those that it has none of decorate nothing.
func (d Drill) Begin(s Scene) Faults { return d.Start(s).whole() }

func (f Faults) whole() Faults {
	if f.Store == nil {
		f.Store = func(s cache.Store) cache.Store { return s }
	}
	if f.Loader == nil {
		f.Loader = func(l cache.Loader) cache.Loader { return l }
	}
	if f.Strategy == nil {
		f.Strategy = func(make func(float64) cache.Strategy, ttlJitter float64) cache.Strategy { return make(ttlJitter) }
	}
	if f.Masked == nil {
		f.Masked = func() int { return 0 }
	}
	if f.Close == nil {
		f.Close = func() error { return nil }
	}
	return f
}

// faulty adapt functions to the interfaces that they decorate.
type (
	faultyLoader   func(ctx context.Context, key string) (string, error)
	faultyStrategy func(ctx context.Context, key string) (*cache.Result, error)
)

// Load implements cache.Loader.
func (f faultyLoader) Load(ctx context.Context, key string) (string, error) { return f(ctx, key) }

// Get implements cache.Strategy.
func (f faultyStrategy) Get(ctx context.Context, key string) (*cache.Result, error) {
	return f(ctx, key)
}

// wrap makes a Strategy hook of a decorator.
func wrap(decorate func(cache.Strategy) cache.Strategy) func(func(float64) cache.Strategy, float64) cache.Strategy {
	return func(make func(float64) cache.Strategy, ttlJitter float64) cache.Strategy {
		return decorate(make(ttlJitter))
	}
}

// perRound counts something in each round.
type perRound struct {
	mu sync.Mutex
	n  map[int]int // by round
}

// add counts one more in the round of the context's worker, and returns how many there are.
func (p *perRound) add(ctx context.Context) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == nil {
		p.n = map[int]int{}
	}
	round := herd.WorkerFrom(ctx).Round
	p.n[round]++
	return p.n[round]
}

func (p *perRound) of(round int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n[round]
}

func (p *perRound) total() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, more := range p.n {
		n += more
	}
	return n
}

// check is one thing that is expected, and what to say if it did not happen.
type check struct {
	ok  bool
	but string
}

func expect(ok bool, format string, args ...any) check {
	return check{ok, fmt.Sprintf(format, args...)}
}

// verdict is ok if all checks are. The text tells what happened, and the first check that failed.
func verdict(l herd.Ledger, text string, checks ...check) herd.Verdict {
	v := herd.Verdict{
		OK:   true,
		Text: herd.Claim(l.BackendCalls, l.Expiries) + ": " + text,
	}
	for _, c := range checks {
		if !c.ok {
			v.OK = false
			v.Text += "; but " + c.but
			break
		}
	}
	return v
}

// round returns the summary of round n (from 1); an empty one if it did not take place.
func round(l herd.Ledger, n int) herd.RoundSummary {
	if n > len(l.ByRound) {
		return herd.RoundSummary{}
	}
	return l.ByRound[n-1]
}

// clean are the checks of a round in which nothing was made to fail.
func clean(l herd.Ledger, n int) check {
	r := round(l, n)
	return expect(r.BackendCalls == 1 && r.Expiries == 1 && r.Outcomes[cache.Failed] == 0 && r.Lost == 0 && r.Acquired == r.Released,
		"round %d was not clean: %d calls, %d errors, %d locks lost", n, r.BackendCalls, r.Outcomes[cache.Failed], r.Lost)
}

// tookPlace checks that there were n rounds, and that somebody else than the first could act in them.
func tookPlace(l herd.Ledger, n int) check {
	return expect(len(l.ByRound) == n && l.Workers > 1, "that takes %d rounds and more than one worker", n)
}

// ErrBackendDown is the failure that a drill injects into a backend call.
var ErrBackendDown = errors.New("price service unavailable (drill)")
