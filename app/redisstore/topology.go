package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Topology is how the servers behind an address are arranged.
type Topology string

// The topologies.
const (
	Standalone Topology = "standalone" // also what cannot be asked
	Cluster    Topology = "cluster"
	Sentinel   Topology = "sentinel" // or whoever else says which server is the master now
)

// hello is what a server says of itself: its mode and version, among others; nil if it does not say. HELLO may be refused, and
// old servers do not know it.
func hello(ctx context.Context, client redis.UniversalClient) map[string]string {
	return pairs(client.Do(ctx, "HELLO").Val())
}

// pairs reads a map of texts in either protocol; what is no text is left out.
func pairs(reply any) map[string]string {
	all := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			all[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case []any: // in the older protocol
		for pair := range slices.Chunk(reply, 2) {
			all[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
		}
	}
	return all
}

// sentinels are those who know a master. They are asked over connections of their own, which nobody counts.
type sentinels struct {
	options *redis.Options // but for the address
	name    string         // of the master
	addrs   []string
}

// watching returns the sentinels of a master that target's sentinel watches, and where that master is. The error names
// the masters, if there are several.
func watching(ctx context.Context, target Target) (s *sentinels, master string, err error) {
	s = &sentinels{options: baseOptions(target), name: target.master, addrs: []string{target.options.Addr}}
	s.options.DB = 0
	sentinel := redis.NewSentinelClient(s.at(s.addrs[0]))
	defer sentinel.Close()
	if s.name == "" {
		if s.name, err = onlyMaster(ctx, sentinel); err != nil {
			return nil, "", err
		}
	}
	if master, err = masterOf(ctx, sentinel, s.addrs[0], s.name); errors.Is(err, redis.Nil) {
		names, err := masters(ctx, sentinel)
		return nil, "", cmp.Or(err, fmt.Errorf("the sentinel knows no master %q, but %s", s.name, listed(names)))
	}
	if err != nil {
		return nil, "", err
	}
	// If this one ends with its master, the others know the next. Who does not tell of them is asked alone.
	others, _ := sentinel.Sentinels(ctx, s.name).Result()
	for _, other := range others {
		s.addrs = append(s.addrs, reached(s.addrs[0], net.JoinHostPort(other["ip"], other["port"])))
	}
	return s, master, nil
}

// at returns the options of the sentinel there.
func (s *sentinels) at(addr string) *redis.Options {
	o := *s.options
	o.Addr = addr
	return &o
}

// masterNow asks the sentinels in turn where the master is now.
func (s *sentinels) masterNow(ctx context.Context) (addr string, err error) {
	var errs []error
	for _, at := range s.addrs {
		sentinel := redis.NewSentinelClient(s.at(at))
		master, err := masterOf(ctx, sentinel, at, s.name)
		_ = sentinel.Close()
		if err == nil {
			return master, nil
		}
		errs = append(errs, fmt.Errorf("ask the sentinel %s for the master %q: %w", at, s.name, err))
	}
	return "", errors.Join(errs...)
}

// oneMaster describes a master that may change as a cluster of one: its node has all slots.
func oneMaster(now func(context.Context) (string, error)) func(context.Context) ([]redis.ClusterSlot, error) {
	return func(ctx context.Context) ([]redis.ClusterSlot, error) {
		addr, err := now(ctx)
		return []redis.ClusterSlot{{End: lastSlot, Nodes: []redis.ClusterNode{{Addr: addr}}}}, err
	}
}

const lastSlot = 16383

// masterOf asks the sentinel at origin where the master of a name is.
func masterOf(ctx context.Context, sentinel *redis.SentinelClient, origin, name string) (addr string, err error) {
	master, err := sentinel.GetMasterAddrByName(ctx, name).Result()
	if err == nil && len(master) != 2 {
		err = fmt.Errorf("the sentinel answered %q", master)
	}
	if err != nil {
		return "", err
	}
	return reached(origin, net.JoinHostPort(master[0], master[1])), nil
}

// onlyMaster returns the name of the master that a sentinel watches, if there is just one.
func onlyMaster(ctx context.Context, sentinel *redis.SentinelClient) (string, error) {
	names, err := masters(ctx, sentinel)
	switch {
	case err != nil:
		return "", err
	case len(names) == 1:
		return names[0], nil
	}
	return "", fmt.Errorf("the sentinel knows %s", listed(names)) // none or several
}

func masters(ctx context.Context, sentinel *redis.SentinelClient) (names []string, err error) {
	replies, err := sentinel.Masters(ctx).Result()
	for _, reply := range replies {
		names = append(names, pairs(reply)["name"])
	}
	slices.Sort(names)
	return names, err
}

// listed names masters, or says that there are none.
func listed(names []string) string {
	if len(names) == 0 {
		return "no master"
	}
	return strings.Join(names, ", ")
}
