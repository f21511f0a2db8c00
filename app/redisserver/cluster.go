package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots        = 16384
	lookAgain    = 20 * time.Millisecond
	clusterLimit = 30 * time.Second // for nodes to know each other
)

// Cluster is a Redis Cluster of masters without replicas, which ends with this process. Make one with [NewCluster], and Close it.
type Cluster struct {
	Nodes []*Server

	folder string // for the nodes' own notes
}

// NewCluster starts n nodes with further arguments, gives each the same share of the slots, and returns when they agree. The
// error is [ErrNone] if there is no redis-server to start.
func NewCluster(ctx context.Context, n int, args ...string) (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(ctx, n, args); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, n int, args []string) (err error) {
	if c.folder, err = os.MkdirTemp("", "cachelab-cluster-"); err != nil {
		return fmt.Errorf("start a Redis Cluster: %w", err)
	}
	for i := range n {
		bus, err := FreePort(ctx)
		if err != nil {
			return fmt.Errorf("find a port for a cluster's node: %w", err)
		}
		node, err := New(ctx, append([]string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--dir", c.folder,
			"--cluster-config-file", fmt.Sprintf("node-%d.conf", i)}, args...)...)
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
		if err := c.join(ctx, i, n, bus); err != nil {
			return fmt.Errorf("make a node part of a Redis Cluster: %w", err)
		}
	}
	return c.Await(ctx)
}

// join gives node i of n its slots, and makes it known to the first.
func (c *Cluster) join(ctx context.Context, i, n, bus int) error {
	node := c.Nodes[i].client()
	defer node.Close()
	first := c.Nodes[0].client()
	defer first.Close()
	return errors.Join(
		node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
		node.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(),
		first.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", c.Nodes[i].Port, bus).Err())
}

// Await returns when all nodes that run agree that all slots are served.
func (c *Cluster) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	for _, node := range c.Nodes {
		client := node.client()
		defer client.Close()
		for {
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the nodes of a Redis Cluster do not agree within %v: %w", clusterLimit, context.Cause(ctx))
			}
			time.Sleep(lookAgain)
		}
	}
	return nil
}

// Owner returns the node that has the slot of key.
func (c *Cluster) Owner(ctx context.Context, key string) (*Server, error) {
	client := c.Nodes[0].client()
	defer client.Close()
	slot, err := client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return nil, fmt.Errorf("find the slot of %q: %w", key, err)
	}
	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("find the node of %q: %w", key, err)
	}
	for _, shard := range shards {
		has := func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End }
		for _, node := range c.Nodes {
			if slices.ContainsFunc(shard.Slots, has) && shard.Nodes[0].Endpoint+":"+strconv.FormatInt(shard.Nodes[0].Port, 10) == node.Addr() {
				return node, nil
			}
		}
	}
	return nil, fmt.Errorf("no node has the slot of %q", key)
}

// Close stops the nodes.
func (c *Cluster) Close() error {
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.folder))...)
}

// client returns a client of the server, for what is told to it alone.
func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
}
