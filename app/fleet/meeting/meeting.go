// Package meeting is where processes of one run that cannot start each other meet: on streams in their Redis, by the run's id.
//
// The run's streams lie under cachelab:{RUN}:, in one slot of a cluster. "door" is open while the run takes joiners in: its
// first entry is the coordinator's, and each joiner adds a knock with a name that it made up. Two more belong to each
// joiner: NAME:up leads to the coordinator, NAME:down to the joiner. All of them expire by themselves, are renewed while
// somebody uses them, and are removed at the end. Only XADD, XREAD, XTRIM, XLEN, EXPIRE, UNLINK and SCAN are sent: nothing
// that Redis's own counts of a run's commands would show.
package meeting

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxJoiners bounds what may be waited for, as each takes a connection.
	MaxJoiners = 50
	// Connections are those that a client needs for the door and for commands that do not wait, beside one for each line.
	Connections = 3
	// lifetime is how long a stream is kept that nobody uses any more. The contract allows 60 s.
	lifetime = 30 * time.Second
	// capacity is how much all lines of a run may hold at once, in both directions: half of the 4 MB that the contract
	// allows, as Redis rounds up, and holds what it sends a second time.
	capacity = 2 << 20
	// look is how long a read waits in Redis. The client cannot be woken from it, so the end of a context waits for it.
	look = 200 * time.Millisecond
	// commandTimeout bounds a command beyond that, and outage the time in which all of them may fail: Redis may start again,
	// or another take its place.
	commandTimeout = time.Second
	outage         = 5 * time.Second
	dialAgain      = 100 * time.Millisecond
)

// Run is one run's streams.
type Run struct {
	ID string
	// Redis is a client whose commands are not sent again by themselves (MaxRetries -1). It stays the caller's to close. The
	// door and each line take one of its connections for good.
	Redis redis.UniversalClient
	// Masters are the servers that hold its keys.
	Masters func(context.Context) ([]*redis.Client, error)
	// Lifetime, if not 0, is that of a stream that nobody uses any more, in whole seconds.
	Lifetime time.Duration
}

func (r Run) key(parts ...string) string {
	return "cachelab:{" + r.ID + "}:" + strings.Join(parts, ":")
}

func (r Run) lifetime() time.Duration {
	if r.Lifetime > 0 {
		return r.Lifetime
	}
	return lifetime
}

// Fields of the door's entries.
const (
	fieldOpen  = "open"  // how many joiners are waited for
	fieldKnock = "knock" // a joiner's name
)

// Door is where a coordinator takes joiners in.
type Door struct {
	run     Run
	joiners int
	last    string // entry that was read
	renewed time.Time
	known   map[string]bool // joiners who knocked: a knock that Redis did not answer may have come twice
}

// ErrTaken says that a run of this id is open already.
var ErrTaken = errors.New("a run of this id is open")

// Open opens the run for joiners. The caller accepts them, those that come too many as well, until it closes the door.
func (r Run) Open(ctx context.Context, joiners int) (*Door, error) {
	d := &Door{run: r, joiners: joiners, renewed: time.Now(), known: map[string]bool{}}
	own, err := r.Redis.XAdd(ctx, &redis.XAddArgs{Stream: r.key("door"), Values: []any{fieldOpen, joiners}}).Result()
	if err != nil {
		return nil, fmt.Errorf("XADD %q: %w", r.key("door"), err)
	}
	if err := r.Redis.Expire(ctx, r.key("door"), r.lifetime()).Err(); err != nil {
		return nil, fmt.Errorf("EXPIRE %q: %w", r.key("door"), err)
	}
	first, err := r.read(ctx, r.key("door"), "0", 1, -1)
	switch {
	case err != nil:
		return nil, err
	case len(first) == 0 || first[0].ID != own:
		// What the entry is to the other coordinator: nothing, as it is no knock.
		return nil, fmt.Errorf("%w, or its coordinator died less than %v ago: choose another id", ErrTaken, r.lifetime())
	}
	d.last = own
	return d, nil
}

// Accept waits for the next joiner. It also renews the door, so it must be waited in while the run is open.
func (d *Door) Accept(ctx context.Context) (*Line, error) {
	for {
		if time.Since(d.renewed) > d.run.lifetime()/4 {
			if d.run.Redis.Expire(ctx, d.run.key("door"), d.run.lifetime()).Err() == nil {
				d.renewed = time.Now()
			}
		}
		var came []redis.XMessage
		err := patiently(ctx, func() (err error) {
			came, err = d.run.read(ctx, d.run.key("door"), d.last, 1, look)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("waiting for joiners: %w", err)
		}
		for _, entry := range came {
			d.last = entry.ID
			name, ok := entry.Values[fieldKnock].(string)
			if ok && isName(name) && !d.known[name] {
				d.known[name] = true
				return newLine(d.run, name, "down", "up", d.joiners), nil
			}
		}
	}
}

// Close removes the door.
func (d *Door) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return d.run.unlink(ctx, d.run.key("door"))
}

// ErrNotOpen says that no run of this id takes joiners in.
var ErrNotOpen = errors.New("it is not open for joiners")

// Join knocks at the run's door. The line leads to the coordinator, who has yet to answer. If there is no such door, the
// error is [ErrNotOpen].
func (r Run) Join(ctx context.Context) (*Line, error) {
	opened, err := r.read(ctx, r.key("door"), "0", 1, -1)
	if err != nil {
		return nil, err
	}
	if len(opened) == 0 {
		return nil, ErrNotOpen
	}
	joiners, err := strconv.Atoi(fmt.Sprint(opened[0].Values[fieldOpen]))
	if err != nil || joiners < 1 || joiners > MaxJoiners {
		return nil, fmt.Errorf("%q is no door of a run: %v", r.key("door"), opened[0].Values)
	}
	name := strings.ToLower(rand.Text()[:nameLength])
	err = r.Redis.XAdd(ctx, &redis.XAddArgs{Stream: r.key("door"), NoMkStream: true, Values: []any{fieldKnock, name}}).Err()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, ErrNotOpen
	case err != nil:
		return nil, fmt.Errorf("XADD %q: %w", r.key("door"), err)
	}
	return newLine(r, name, "up", "down", joiners), nil
}

const nameLength = 8

func isName(text string) bool {
	return len(text) == nameLength && !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') })
}

// Doors returns the ids of all runs that are open for joiners. It looks at each key in Redis.
func (r Run) Doors(ctx context.Context) (ids []string, err error) {
	masters, err := r.Masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, master := range masters {
		keys := master.Scan(ctx, 0, "cachelab:{*}:door", 1000).Iterator()
		for keys.Next(ctx) {
			ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(keys.Val(), "cachelab:{"), "}:door"))
		}
		if err := keys.Err(); err != nil {
			return nil, fmt.Errorf("SCAN for open runs: %w", err)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Keys are some that lie where all of the run's streams do.
func (r Run) Keys() []string { return []string{r.key("door")} }

// read returns up to count entries after the given one; none after the time in which it waits. A negative time does not wait.
func (r Run) read(ctx context.Context, key, after string, count int64, wait time.Duration) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, max(0, wait)+commandTimeout)
	defer cancel()
	streams, err := r.Redis.XRead(ctx, &redis.XReadArgs{Streams: []string{key}, ID: after, Count: count, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("XREAD %q: %w", key, err)
	}
	return streams[0].Messages, nil
}

func (r Run) unlink(ctx context.Context, keys ...string) error {
	if err := r.Redis.Unlink(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("UNLINK %q: %w", keys, err)
	}
	return nil
}

// patiently does something again that fails, until it fails for too long or ctx ends.
func patiently(ctx context.Context, do func() error) error {
	var failing time.Time
	for {
		err := do()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			return nil
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > outage:
			return fmt.Errorf("the Redis stayed away for %v: %w", outage, err)
		}
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
