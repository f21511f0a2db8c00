package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// nodes is a client with a pool of connections to each server that holds keys: to the one that stands alone, to the master
// that a sentinel names, or to each master of a cluster.
type nodes struct {
	redis.UniversalClient
	cluster *redis.ClusterClient // nil where the server stands alone
	make    func(addr string) (*redis.Client, error)
	// redirected, if set, is told of a command that a node sends on, in its context.
	redirected func(ctx context.Context, word, addr string)

	mu     sync.Mutex // guards what follows
	byAddr map[string]*redis.Client
	own    []*redis.Client // that the cluster's client does not know of
	err    error           // of making one
}

// alone is the client of a server that stands alone.
func alone(client *redis.Client) *nodes { return &nodes{UniversalClient: client} }

// together returns the client of a cluster that is entered at addr, or of the one that slots describes. It never sends a command
// again, but on: see [redirect].
func together(addr string, slots func(context.Context) ([]redis.ClusterSlot, error), make func(addr string) (*redis.Client, error),
	redirected func(ctx context.Context, word, addr string)) *nodes {
	n := &nodes{make: make, redirected: redirected, byAddr: map[string]*redis.Client{}}
	n.cluster = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        []string{addr},
		ClusterSlots: slots,
		NewClient: func(o *redis.Options) *redis.Client {
			if slots != nil { // it is reached where they say: what the client makes of the host is for clusters
				return n.add(cmp.Or(o.NodeAddress, o.Addr))
			}
			return n.add(o.Addr)
		},
		MaxRedirects:           -1,
		DisableRoutingPolicies: true,
		// What its subscriptions go by. The nodes' clients have options of their own.
		ReadTimeout: commandTimeout, WriteTimeout: commandTimeout, ContextTimeoutEnabled: true,
	})
	n.UniversalClient = n.cluster
	return n
}

func (n *nodes) add(addr string) *redis.Client {
	client, err := n.make(addr)
	client.AddHook(redirect{n, addr})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byAddr[addr], n.err = client, errors.Join(n.err, err)
	return client
}

// at returns the client of the node at addr, which a node has named: perhaps one that has no slots yet.
func (n *nodes) at(addr string) *redis.Client {
	n.mu.Lock()
	client := n.byAddr[addr]
	n.mu.Unlock()
	if client != nil {
		return client
	}
	client = n.add(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own = append(n.own, client)
	return client
}

// masters returns the clients of all nodes that hold keys.
func (n *nodes) masters(ctx context.Context) (all []*redis.Client, err error) {
	if n.cluster == nil {
		return []*redis.Client{n.UniversalClient.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	err = n.cluster.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, client)
		return nil
	})
	return all, err
}

// of returns the clients of the nodes that hold the keys, each once. The error may be that of making a client.
func (n *nodes) of(ctx context.Context, keys []string) (all []*redis.Client, err error) {
	if n.cluster == nil {
		return n.masters(ctx)
	}
	for _, key := range keys {
		client, err := n.cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, client) {
			all = append(all, client)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return all, n.err
}

// lookAround asks anew who has what: a node that does not answer may have been replaced. It returns at once.
func (n *nodes) lookAround(ctx context.Context) {
	if n.cluster != nil {
		n.cluster.ReloadState(ctx)
	}
}

func (n *nodes) close() error {
	err := n.UniversalClient.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, client := range n.own {
		err = errors.Join(err, client.Close())
	}
	return err
}
