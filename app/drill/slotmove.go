package drill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func slotMove() Drill {
	return Drill{
		Name:  "slot-move",
		Short: "the slots of key and lock move to other nodes of a cluster in mid-round: still one call for each expiry",
		Long: `Round 2, on a Redis Cluster of three nodes: while the winner's backend call runs and the others wait, the slot of the lock and
that of the key move to another node each. Halfway the old node answers ASK for what it does not have, and afterwards MOVED; the
client sends the command on. Nobody fails, nobody waits for more than a hop, and there is one call all the same: the lock
moves with its token and its TTL. The drill starts a cluster of its own, and needs a redis-server for it.`,
		Settings: map[string]string{"rounds": "3", "ttl": "1s"},
		Owns:     Cluster,
		Start:    startSlotMove,
	}
}

// halfwayLimit bounds the time for which a slot is between two nodes.
const halfwayLimit = 2 * time.Second

func startSlotMove(s Scene) Faults {
	all := newAllAnswered(s.Workers)
	move := func(ctx context.Context, key string, halfway func()) error {
		from, to, err := s.MoveSlot(ctx, key, halfway)
		if err == nil {
			s.Report(ctx, fmt.Sprintf("the slot of %q has moved from %s to %s", key, from, to))
		}
		return err
	}
	var tries perRound
	var moved atomic.Bool
	return Faults{
		Store: func(next cache.Store) cache.Store {
			return &lockingStore{Store: next, before: func(context.Context) error { return nil }, answered: all.add}
		},
		Loader: func(next cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, key string) (string, error) {
				if herd.WorkerFrom(ctx).Round != faultRound || tries.add(ctx) > 1 {
					return next.Load(ctx, key)
				}
				if err := all.wait(ctx); err != nil {
					return "", err
				}
				absent := move(ctx, key, func() { awaitHop(ctx, s.SentOn) })
				held := move(ctx, cache.LockKey(key), func() {}) // the old node answers for what it still has
				if err := errors.Join(absent, held); err != nil {
					return "", err
				}
				moved.Store(true)
				return next.Load(ctx, key)
			})
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			r := round(l, faultRound)
			text := fmt.Sprintf("the slots of key and lock moved while %d workers waited: %d commands were sent on from node to node, %d failed, and there was %d backend call in that cycle",
				r.Workers-1, s.SentOn(), r.StoreErrors, r.BackendCalls)
			return verdict(l, text, tookPlace(l, faultRound+1),
				expect(moved.Load(), "the slots did not move"),
				expect(s.SentOn() > 0, "no command was sent on"),
				expect(l.StoreErrors == 0, "%d commands failed", l.StoreErrors),
				clean(l, faultRound-1), clean(l, faultRound), clean(l, faultRound+1))
		},
	}
}

// awaitHop returns once a command more was sent on: waiters poll, so it is soon.
func awaitHop(ctx context.Context, sentOn func() int) {
	ctx, cancel := context.WithTimeout(ctx, halfwayLimit)
	defer cancel()
	for before := sentOn(); sentOn() == before; {
		if cache.Sleep(ctx, time.Millisecond) != nil {
			return
		}
	}
}
