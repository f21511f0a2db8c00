package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// ErrWinnerDied is what the worker gets whose process was killed.
var ErrWinnerDied = errors.New("the winner's process was killed (drill)")

const (
	deathRound = 1
	deathOf    = 1 // the worker that is a process of its own
	// grace is how much longer than the lock's TTL the take-over may take: the age of a waiter's last lock attempt,
	// a pause, and a busy machine.
	grace = 500 * time.Millisecond
)

func deadWinner() Drill {
	return Drill{
		Name:  "dead-winner",
		Short: "the winner is killed in mid-fill and never unlocks: within the lock's TTL (1 s) one waiter takes over",
		Long: `In round 1 the winner is a process of its own, killed with SIGKILL while its backend call runs. Its lock stays until its
TTL ends; then exactly one waiter takes over: 2 calls in that cycle. Round 2 is clean. The process tells each of its steps
before it goes on, so they are in the ledger and in the trace; a lock is missing among the releases, and that is the point.`,
		Settings: map[string]string{"workers": "20", "rounds": "2", "ttl": "1s", "lock-ttl": "1s"},
		Start:    startDeadWinner,
	}
}

// death is the drill on its way.
type death struct {
	Scene
	locked chan struct{} // closed when the process has the lock, or is gone

	mu        sync.Mutex
	took      time.Time // the process asked for the lock, and got it
	takeOver  time.Time // a waiter got it
	takeOvers int       // how often that was, in the round
	status    string    // how the process ended
	killed    bool
	process   int
	problem   error
}

func startDeadWinner(s Scene) Faults {
	d := &death{Scene: s, locked: make(chan struct{})}
	return Faults{
		Store: func(next cache.Store) cache.Store { return takeOvers{next, d} },
		Strategy: wrap(func(next cache.Strategy) cache.Strategy {
			return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
				switch worker := herd.WorkerFrom(ctx); {
				case worker.Round != deathRound:
				case worker.Number == deathOf:
					return d.live(ctx, key)
				default: // the process is the first
					select {
					case <-d.locked:
					case <-ctx.Done():
						return &cache.Result{Outcome: cache.Failed}, context.Cause(ctx)
					}
				}
				return next.Get(ctx, key)
			})
		}),
		Judge: d.judge,
		Close: func() error { return d.problem },
	}
}

// takeOvers sees who takes the lock after the dead.
type takeOvers struct {
	cache.Store
	*death
}

func (t takeOvers) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := t.Store.Lock(ctx, key, token, ttl)
	if err == nil && holder == token && herd.WorkerFrom(ctx).Round == deathRound {
		t.mu.Lock()
		first := t.takeOvers == 0
		if first {
			t.takeOver = time.Now()
		}
		t.takeOvers++
		after := time.Since(t.took).Round(time.Millisecond)
		t.mu.Unlock()
		if first {
			t.Report(ctx, fmt.Sprintf("takes over, %v after the dead winner's lock", after))
		}
	}
	return holder, err
}

// live is the request of the worker that is a process: it lives until its backend call.
func (d *death) live(ctx context.Context, key string) (*cache.Result, error) {
	result := &cache.Result{Outcome: cache.Failed}
	defer func() {
		select {
		case <-d.locked:
		default:
			close(d.locked)
		}
	}()
	winner, err := d.Winner(ctx)
	if err != nil {
		return result, d.fail(err)
	}
	d.Report(ctx, fmt.Sprintf("this worker is process %d", winner.Pid()))
	err = d.follow(ctx, winner, key, result)
	status := winner.Kill() // if it was not killed already
	d.mu.Lock()
	defer d.mu.Unlock()
	d.process, d.status = winner.Pid(), status
	if err == nil {
		return result, ErrWinnerDied
	}
	return result, err
}

// fail keeps a fault of the machine, which is no part of the drill.
func (d *death) fail(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = fmt.Errorf("the winner's process: %w", err)
	return d.problem
}

// follow counts the steps of the process, and kills it at its backend call.
func (d *death) follow(ctx context.Context, winner Winner, key string, r *cache.Result) (err error) {
	for {
		s, err := winner.Step(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return d.fail(fmt.Errorf("ended before its backend call: %w", err))
		}
		switch {
		case s.Command == commandGet && !s.Yes:
			r.Misses++
			r.Sent.Get++
			d.Step(ctx, s, nil)
			if s.Recheck {
				continue
			}
			var end func(*cache.Result, error)
			ctx, end = d.Probe.Miss(ctx, key)
			defer func() { end(r, cmp.Or(err, ErrWinnerDied)) }()
			if err := winner.Token(ctx, d.NewToken(ctx)); err != nil {
				return d.fail(err)
			}
		case s.Command == commandLock && s.Yes:
			r.Acquired++
			r.Sent.Lock++
			d.Step(ctx, s, nil)
			d.mu.Lock()
			d.took = s.Began // the lock began to live somewhat later: it cannot have ended before its TTL after this
			d.mu.Unlock()
			close(d.locked)
		case s.Command == commandCall:
			r.BackendCalls++
			r.BackendErrors++
			d.Step(ctx, s, nil)
			d.Report(ctx, fmt.Sprintf("process %d is killed in its backend call, with SIGKILL", s.Process))
			winner.Kill()
			d.mu.Lock()
			d.killed = true
			d.mu.Unlock()
			s.Ended = time.Now()
			d.Step(ctx, s, ErrWinnerDied)
			return nil
		default:
			return d.fail(fmt.Errorf("did not win: %s, %v", s.Command, s.Yes))
		}
	}
}

func (d *death) judge(l herd.Ledger) herd.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := round(l, deathRound)
	after := d.takeOver.Sub(d.took).Round(time.Millisecond)
	text := fmt.Sprintf("process %d won and was killed in mid-fill (%s); ", d.process, d.status)
	if !d.killed {
		text = "no process won and was killed; "
	}
	if d.takeOvers > 0 {
		text += fmt.Sprintf("%v after its lock, whose TTL is %v, one of %d waiters took over: ", after, d.LockTTL, r.Workers-1)
	} else {
		text += "nobody took over: "
	}
	text += fmt.Sprintf("%d calls in that cycle", r.BackendCalls)
	return verdict(l, text, tookPlace(l, deathRound+1),
		expect(d.killed, "no process was killed"),
		expect(r.BackendCalls == 2 && r.BackendErrors == 1 && r.Expiries == 1, "%d calls, %d of them failed", r.BackendCalls, r.BackendErrors),
		expect(r.Outcomes[cache.Failed] == 1 && r.Outcomes[cache.Filled] == 1, "%d failed and %d filled", r.Outcomes[cache.Failed], r.Outcomes[cache.Filled]),
		expect(d.took.Add(d.LockTTL-2*time.Millisecond).Before(d.takeOver) && after <= d.LockTTL+grace, "the take-over came after %v", after),
		expect(r.Acquired == r.Released+1 && r.Lost == 0, "%d locks acquired, %d released, %d lost", r.Acquired, r.Released, r.Lost),
		clean(l, deathRound+1))
}
