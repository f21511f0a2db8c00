package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"cachelab/app/cache"
)

// Step is what the winner's process did, as it tells it: one line of JSON.
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

// patience bounds the backend call of a winner that nobody kills.
const patience = 10 * time.Second

// Winner asks for the key with the fixed strategy, as a process of its own: it tells each step on out,
// reads its token from in after the miss, and its backend call never answers. Somebody is expected to kill it
// there; when in ends first, whoever started it is gone, and so it leaves, without its lock.
func Winner(ctx context.Context, store cache.Store, key string, lockTTL time.Duration, process int, connections func() int, in io.Reader, out io.Writer) error {
	tell := teller{out: json.NewEncoder(out), process: process, connections: connections}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	tokens := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			tokens <- lines.Text()
		}
		leave(errors.New("whoever started it is gone"))
	}()
	fixed := &cache.Fixed{
		Aside: cache.Aside{
			Store: tellingStore{store, tell},
			Backend: faultyLoader(func(ctx context.Context, _ string) (string, error) {
				tell.step(Step{Command: commandCall, Began: time.Now()})
				if err := cache.Sleep(ctx, patience); err != nil {
					return "", err
				}
				return "", errors.New("nobody killed this process")
			}),
			Probe: cache.NoProbe{},
			TTL:   time.Second, // nothing is stored
		},
		Lock: cache.FillLock{TTL: lockTTL, NewToken: func(ctx context.Context) string {
			select {
			case token := <-tokens:
				return token
			case <-ctx.Done():
				return cache.RandomToken(ctx)
			}
		}},
		WaitTimeout: time.Millisecond, // it shall win or leave
	}
	if _, err := fixed.Get(ctx, key); err != nil {
		return fmt.Errorf("the winner's process: %w", err)
	}
	return errors.New("the winner's process found the value: it was to be the first to ask")
}

// teller writes steps. An error is no concern of the teller's: the reader sees the end of the pipe.
type teller struct {
	out         *json.Encoder
	process     int
	connections func() int
}

func (t teller) step(s Step) {
	s.Process, s.Connections = t.process, t.connections()
	_ = t.out.Encode(s)
}

type tellingStore struct {
	cache.Store
	teller
}

func (t tellingStore) Get(ctx context.Context, key string) (string, bool, error) {
	began := time.Now()
	value, found, err := t.Store.Get(ctx, key)
	if err == nil {
		t.step(Step{Command: commandGet, Recheck: cache.ReadOf(ctx) == cache.Recheck, Yes: found, Began: began, Ended: time.Now()})
	}
	return value, found, err
}

func (t tellingStore) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	began := time.Now()
	holder, err := t.Store.Lock(ctx, key, token, ttl)
	if err == nil {
		t.step(Step{Command: commandLock, Yes: holder == token, Began: began, Ended: time.Now()})
	}
	return holder, err
}
