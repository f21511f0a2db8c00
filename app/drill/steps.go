package drill

import (
	"context"
	"errors"
	"time"

	"cachelab/app/cache"
)

// Step is what a worker that is a process of its own did, as it tells it: before it goes on, so that the step is known even if the
// process dies.
type Step struct {
	Command string    `json:"command"` // "GET", "SET NX PX" or "backend call"
	Recheck bool      `json:"recheck"` // of GET
	Yes     bool      `json:"yes"`     // GET found the value, SET NX PX got the lock
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"` // zero for the backend call: it is told when it begins
	Process int       `json:"process"`
	// Connections are those to Redis that the process has made so far.
	Connections int `json:"connections"`
}

// The commands of a Step.
const (
	commandGet  = "GET"
	commandLock = "SET NX PX"
	commandCall = "backend call"
)

// Winner is a worker that is a process of its own: it asks for the key, and tells its steps.
type Winner interface {
	Pid() int
	// Step waits for the next step.
	Step(context.Context) (Step, error)
	// Token gives it the token of its fill lock, which it waits for after its miss.
	Token(ctx context.Context, token string) error
	// Kill kills it, and returns how it ended.
	Kill() string
}

// patience bounds the backend call of a process that nobody kills.
const patience = 10 * time.Second

// Doomed are the faults of that process: it tells each step, and its backend call never answers. Somebody is expected to kill it there.
func Doomed(tell func(Step)) Faults {
	return Faults{
		Store: func(next cache.Store) cache.Store { return telling{next, tell} },
		Loader: func(cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, _ string) (string, error) {
				tell(Step{Command: commandCall, Began: time.Now()})
				if err := cache.Sleep(ctx, patience); err != nil {
					return "", err
				}
				return "", errors.New("nobody killed this process")
			})
		},
	}.whole()
}

// telling tells the commands of a store.
type telling struct {
	cache.Store
	tell func(Step)
}

func (t telling) Get(ctx context.Context, key string) (string, bool, error) {
	began := time.Now()
	value, found, err := t.Store.Get(ctx, key)
	if err == nil {
		t.tell(Step{Command: commandGet, Recheck: cache.ReadOf(ctx) == cache.Recheck, Yes: found, Began: began, Ended: time.Now()})
	}
	return value, found, err
}

func (t telling) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	began := time.Now()
	holder, err := t.Store.Lock(ctx, key, token, ttl)
	if err == nil {
		t.tell(Step{Command: commandLock, Yes: holder == token, Began: began, Ended: time.Now()})
	}
	return holder, err
}
