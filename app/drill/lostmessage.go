package drill

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// heard are the first rounds of the drill, whose messages arrive; those of the others are lost.
const heard = 3

// slower is how many times longer the waits must be without messages: or it was not the message that ended them.
const slower = 5

func lostMessage() Drill {
	return Drill{
		Name:  "lost-message",
		Mode:  "woken",
		Short: "every PUBLISH is lost from round 4 on: still one call for each expiry, and the waits are longer",
		Long: `Eight instances, each with flights and a subscription of its own, stand for as many processes. In the first three rounds
the winner's message wakes the others. From then on each PUBLISH goes where nobody listens. The message was only a hint: each waiting
flight looks by itself, about every 500 ms. So a lost message costs time, and never a second call.`,
		Settings: map[string]string{"workers": "160", "rounds": "6", "ttl": "2s", "backend-jitter": "0", "quiet": "true"},
		Start:    startLostMessage,
	}
}

// misdirected is a store whose messages are lost after the first rounds. The command is sent all the same.
type misdirected struct {
	cache.Store
	scene Scene
}

func (m misdirected) Publish(ctx context.Context, channel string) error {
	if herd.WorkerFrom(ctx).Round > heard {
		m.scene.Report(ctx, "the message is lost: nobody listens where it goes")
		channel += ":lost"
	}
	return m.Store.Publish(ctx, channel)
}

// waits are how long requests waited after the backend had answered, with messages and without.
type waits struct {
	mu            sync.Mutex
	answered      map[int]time.Time // by round
	with, without []time.Duration
}

func (w *waits) load(next cache.Loader) cache.Loader {
	return faultyLoader(func(ctx context.Context, key string) (string, error) {
		value, err := next.Load(ctx, key)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answered[herd.WorkerFrom(ctx).Round] = time.Now()
		return value, err
	})
}

func (w *waits) around(next cache.Strategy) cache.Strategy {
	return faultyStrategy(func(ctx context.Context, key string) (*cache.Result, error) {
		result, err := next.Get(ctx, key)
		round := herd.WorkerFrom(ctx).Round
		w.mu.Lock()
		defer w.mu.Unlock()
		switch waited := time.Since(w.answered[round]); {
		case result.Outcome != cache.Waited:
		case round > heard:
			w.without = append(w.without, waited)
		default:
			w.with = append(w.with, waited)
		}
		return result, err
	})
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

func startLostMessage(s Scene) Faults {
	w := &waits{answered: map[int]time.Time{}}
	return Faults{
		Store:  func(next cache.Store) cache.Store { return misdirected{next, s} },
		Loader: w.load,
		Strategy: func(make func(float64) cache.Strategy, ttlJitter float64) cache.Strategy {
			return w.around(instances(make, ttlJitter))
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			with, without := median(w.with), median(w.without)
			checks := []check{tookPlace(l, 2*heard)}
			for n := range 2 * heard {
				rang := round(l, n+1).WokenByMessage
				checks = append(checks, clean(l, n+1), expect((rang > 0) == (n < heard), "in round %d %d flights were woken by a message", n+1, rang))
			}
			checks = append(checks, expect(with > 0 && without >= slower*with, "that is not %d times as long", slower))
			return verdict(l, fmt.Sprintf("half of the %d instances' requests waited %v or more after the fill, and %v when every message was lost: %.0f times as long",
				processes, with.Round(100*time.Microsecond), without.Round(time.Millisecond), float64(without)/float64(max(1, with))), checks...)
		},
	}
}
