package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// migrateTimeout bounds the move of a slot's keys from node to node.
const migrateTimeout = 5 * time.Second

// MoveSlot moves the slot of key to another node of the cluster, which must be the caller's own, with all that is in it, and
// returns where it was and is. In between it calls halfway: the old node executes commands on keys that it still has, and asks
// the client to ask the new one for others.
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#live-reconfiguration)
func (r *Redis) MoveSlot(ctx context.Context, key string, halfway func()) (from, to string, err error) {
	source, target, err := r.neighbours(ctx, key)
	if err != nil {
		return "", "", fmt.Errorf("move the slot of %q: %w", key, err)
	}
	from, to = source.Options().Addr, target.Options().Addr
	if err := r.move(ctx, source, target, key, halfway); err != nil {
		return from, to, fmt.Errorf("move the slot of %q from %s to %s: %w", key, from, to, err)
	}
	return from, to, nil
}

// neighbours returns the node that has the slot of key, and another one.
func (r *Redis) neighbours(ctx context.Context, key string) (source, target *redis.Client, err error) {
	if r.kind != Cluster {
		return nil, nil, errors.New("this is no cluster")
	}
	if source, err = r.keeper.cluster.MasterForKey(ctx, key); err != nil {
		return nil, nil, err
	}
	masters, err := r.keeper.masters(ctx)
	for _, master := range masters {
		if master != source {
			return source, master, err
		}
	}
	return nil, nil, errors.Join(err, errors.New("there is no other node"))
}

func (r *Redis) move(ctx context.Context, source, target *redis.Client, key string, halfway func()) error {
	slot := source.ClusterKeySlot(ctx, key)
	sourceID, targetID := source.ClusterMyID(ctx), target.ClusterMyID(ctx)
	if err := errors.Join(slot.Err(), sourceID.Err(), targetID.Err()); err != nil {
		return err
	}
	set := func(node *redis.Client, args ...any) error {
		return node.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot.Val()}, args...)...).Err()
	}
	if err := errors.Join(set(target, "IMPORTING", sourceID.Val()), set(source, "MIGRATING", targetID.Val())); err != nil {
		return err
	}
	halfway()
	keys, err := migrate(ctx, source, target.Options().Addr, int(slot.Val()))
	if err != nil {
		return err
	}
	if keys > 0 {
		r.dialled.Add(1) // by the source: it keeps the connection for the next key
	}
	if err := set(target, "NODE", targetID.Val()); err != nil {
		return err
	}
	masters, err := r.keeper.masters(ctx) // the others would hear of it a little later
	for _, master := range masters {
		err = errors.Join(err, set(master, "NODE", targetID.Val()))
	}
	return err
}

// migrate moves the keys of a slot, and returns how many there were.
func migrate(ctx context.Context, source *redis.Client, addr string, slot int) (moved int, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil || len(keys) == 0 {
			return moved, err
		}
		for _, key := range keys { // which may expire meanwhile
			if err := source.Migrate(ctx, host, port, key, 0, migrateTimeout).Err(); err != nil {
				return moved, err
			}
			moved++
		}
	}
}
