// Package redisstore is the cache's store on Redis, and the only room that sends Redis commands, but for app/fleet/meeting.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"cachelab/app/cache"
)

// Limits of the client, chosen so that a dead or silent Redis costs seconds, not minutes.
const (
	dialTimeout      = time.Second
	handshakeTimeout = time.Second // more, for TLS: when all connections are made at once, they wait for each other's
	commandTimeout   = time.Second
	answerTimeout    = 2 * time.Second        // for a Redis given by URL to connect and answer the first PING
	autoTimeout      = 300 * time.Millisecond // for the one on localhost, if there is one
)

// Options say how to open a Redis.
type Options struct {
	Target Target
	// Master, if set, says where the master is, host:port, of servers of the caller's own of which another may become it. It is
	// asked again when that one fails; Target does not count then.
	Master  func(ctx context.Context) (addr string, err error)
	Workers int // the pool is sized for them
	// Herd is how many workers there are in all processes, if there are more: replies take their time then.
	Herd int
	// Name is what the connections call themselves, unique to the run: other clients of the server have other names.
	Name string
	// Keys are those that the workers use most: connections are warm where they are. Only in a cluster does it matter.
	Keys []string
	// Instrument, if set, is called with the workers' client of each server that holds keys, before it sends anything.
	Instrument func(*redis.Client) error
	// Redirected, if set, is told when a node of a cluster does not execute a command but sends it on to the one at addr (or, as
	// it has only some of the keys yet, wants it once more): with the node's word, MOVED, ASK or TRYAGAIN, in the command's context.
	Redirected func(ctx context.Context, word, addr string)
	// Commands, if set, counts for a server that keeps no command statistics (the embedded one).
	Commands func() map[string]int
	// Starts tells how often such a server was started. The others name themselves anew with each start.
	Starts func() int
}

// Redis is an open connection: one client for the workers, and one for housekeeping, which is not measured.
type Redis struct {
	*Store
	client    *nodes
	keeper    *nodes
	options   Options
	where     string // see Where
	kind      Topology
	listeners []*listener
	greetings *greetings   // of the sentinels that watch the server; nil before they were seen
	dialled   atomic.Int64 // connections made by the run, those that failed or were closed again included
}

// DiscardClientLog keeps the client library's own log off the terminal: whatever goes wrong comes back as an
// error too. The setting is the process's.
func DiscardClientLog() { redis.SetLogger(discard{}) }

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

// Probe reports whether the Redis of an auto target answers, and if not, why.
func Probe(ctx context.Context, t Target) error {
	r := &Redis{options: Options{Target: t}, where: t.Location()}
	r.keeper = alone(redis.NewClient(r.clientOptions(t.options.Addr, 1, 0)))
	defer r.keeper.close()
	err := ping(ctx, r.keeper, autoTimeout)
	switch answer := redis.Error(nil); {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return r.refused(ctx, "PING", err)
	}
	return fmt.Errorf("none at %s: %w", t.options.Addr, err)
}

// Open connects to the servers behind the target, whatever they are, and warms a connection for each worker up to a limit. The
// error says what was tried and what to do. The caller must Close.
func Open(ctx context.Context, options Options) (*Redis, error) {
	if options.Master != nil {
		master, err := options.Master(ctx)
		if err != nil {
			return nil, err
		}
		options.Target = at(master)
	}
	r := &Redis{options: options, kind: Standalone, where: options.Target.Location()}
	err := r.start(ctx)
	if err == nil {
		return r, nil
	}
	err = errors.Join(err, r.Close())
	if options.Name != "" && nameRefused.MatchString(err.Error()) {
		options.Name = "" // only the count of commands needs it
		return Open(ctx, options)
	}
	return nil, err
}

// OpenAt is Open for the server at addr (host:port) on this machine.
func OpenAt(ctx context.Context, addr string, options Options) (*Redis, error) {
	options.Target = at(addr)
	return Open(ctx, options)
}

// Where says where the Redis is and, if it does not stand alone, what it is; without user and password.
func (r *Redis) Where() string { return r.where }

// Topology tells what it is.
func (r *Redis) Topology() Topology { return r.kind }

func (r *Redis) start(ctx context.Context) error {
	entry := r.options.Target.options.Addr
	o := r.clientOptions(entry, 1, 0)
	o.DB = 0 // a sentinel has no other
	asked := alone(redis.NewClient(o))
	r.keeper = asked
	if err := ping(ctx, asked, answerTimeout); err != nil {
		return r.refused(ctx, "PING", err)
	}
	var slots func(context.Context) ([]redis.ClusterSlot, error)
	switch r.kind = Topology(hello(ctx, asked)["mode"]); r.kind {
	case Cluster:
	case Sentinel:
		watchers, master, err := watching(ctx, r.options.Target)
		if err != nil {
			return r.refused(ctx, "SENTINEL MASTERS", err)
		}
		slots, entry = oneMaster(watchers.masterNow), master
		r.where += fmt.Sprintf(" (sentinel: master %s at %s)", watchers.name, master)
	default:
		r.kind = Standalone
	}
	if r.options.Master != nil {
		slots, r.kind = oneMaster(r.options.Master), Sentinel
	}
	if err := errors.Join(r.connect(entry, slots), asked.close()); err != nil {
		return err
	}
	if r.kind == Cluster {
		masters, err := r.keeper.masters(ctx)
		if err != nil {
			return r.refused(ctx, "CLUSTER SLOTS", err)
		}
		r.where += fmt.Sprintf(" (cluster of %d)", len(masters))
	}
	if err := r.warm(ctx); err != nil {
		return r.refused(ctx, fmt.Sprintf("PING on %d connections", r.pool()), err)
	}
	return nil
}

// connect makes the clients of the servers that hold the keys, of which one is at entry.
func (r *Redis) connect(entry string, slots func(context.Context) ([]redis.ClusterSlot, error)) (err error) {
	if r.kind == Standalone {
		keeper, _ := r.newKeeper(entry)
		workers, failed := r.newWorkers(entry)
		r.keeper, r.client, err = alone(keeper), alone(workers), failed
	} else {
		r.keeper = together(entry, slots, r.newKeeper, nil)
		r.client = together(entry, slots, r.newWorkers, r.options.Redirected)
	}
	r.Store = NewStore(r.client)
	return err
}

// nameRefused is how servers refuse CLIENT SETNAME, with and without the subcommand.
var nameRefused = regexp.MustCompile(`(?i)(NOPERM|unknown (sub)?command).*\bclient\b`)

// pool is how many connections the workers have to each server.
func (r *Redis) pool() int {
	o, most := r.options, maxPool
	if o.Herd > o.Workers {
		most = max(leastPool, min(maxPool, sharedPool*o.Workers/o.Herd))
	}
	return min(o.Workers, most)
}

// newWorkers returns the workers' client of one server.
func (r *Redis) newWorkers(addr string) (client *redis.Client, err error) {
	passage := Passage(max(r.options.Workers, r.options.Herd))
	client = redis.NewClient(r.clientOptions(addr, r.pool(), passage))
	if r.options.Instrument != nil {
		err = r.options.Instrument(client)
	}
	if r.options.Workers > r.pool() {
		client.AddHook(newQueue(r.pool(), passage))
	}
	return client, err
}

// newKeeper returns the housekeeping's client of one server. There is no error.
func (r *Redis) newKeeper(addr string) (*redis.Client, error) {
	return redis.NewClient(r.clientOptions(addr, 1, 0)), nil
}

// dial counts each connection that the server has accepted, whatever becomes of it: one whose handshake fails is ours, too.
func (r *Redis) dial(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		limited, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := dialer.DialContext(limited, network, addr)
		if err != nil {
			return nil, err
		}
		r.dialled.Add(1)
		if secure == nil {
			return conn, nil
		}
		inside := tls.Client(conn, forHost(secure, addr))
		if err := inside.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return inside, nil
	}
}

// forHost is the configuration for a host, whose name is in its certificate if no other was given.
func forHost(config *tls.Config, addr string) *tls.Config {
	if config.ServerName != "" {
		return config
	}
	config = config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(addr)
	return config
}

// NewListener returns a listener with a connection of its own. It is closed with r.
func (r *Redis) NewListener() cache.Listener {
	l := newListener(r.keeper)
	r.listeners = append(r.listeners, l)
	return l
}

// Close closes the connections.
func (r *Redis) Close() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.close())
	}
	if r.client != nil { // else it was never used
		errs = append(errs, r.client.close())
	}
	if r.greetings != nil {
		errs = append(errs, r.greetings.close())
	}
	return errors.Join(append(errs, r.keeper.close())...)
}

// clientOptions are those of the client of the server at addr.
func (r *Redis) clientOptions(addr string, pool int, passage time.Duration) *redis.Options {
	o := baseOptions(r.options.Target)
	o.ClientName = r.options.Name
	if addr != o.Addr { // of a node that another one has named, perhaps by a socket
		o.Network, o.Addr = "tcp", addr
	}
	o.Dialer = r.dial(o.TLSConfig)
	o.ReadTimeout += passage
	o.PoolSize, o.PoolTimeout = pool, queueTimeout+passage
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, pool, pool
	return o
}

// baseOptions are those of any client, sentinels' included.
func baseOptions(t Target) *redis.Options {
	o := *t.options
	o.DisableIdentity = true // no CLIENT SETINFO with each connection
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.MaxRetries = -1 // a retry hides what happened: the strategy's loop retries
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.DialerRetries = dialTimeout, 1
	if o.TLSConfig != nil {
		o.DialTimeout += handshakeTimeout
	}
	o.ReadTimeout, o.WriteTimeout = commandTimeout, commandTimeout
	return &o
}

func ping(ctx context.Context, client redis.UniversalClient, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	started := time.Now()
	err := pinged(client.Ping(limited).Err())
	if slow := net.Error(nil); ctx.Err() == nil && errors.As(err, &slow) && slow.Timeout() {
		return fmt.Errorf("no answer within %v", time.Since(started).Round(100*time.Millisecond))
	}
	return err
}

// warm opens the workers' connections where their keys are.
func (r *Redis) warm(ctx context.Context) error {
	servers, err := r.client.of(ctx, r.options.Keys)
	if err != nil {
		return err
	}
	errs := make([]error, len(servers))
	var done sync.WaitGroup
	for i, server := range servers {
		done.Go(func() { errs[i] = warm(ctx, server) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// warm opens all connections of the pool: it holds as many at once as there are.
func warm(ctx context.Context, client *redis.Client) error {
	errs := make([]error, client.Options().PoolSize)
	var all, done sync.WaitGroup
	all.Add(len(errs))
	for i := range errs {
		done.Go(func() {
			conn := client.Conn()
			defer conn.Close()
			errs[i] = pinged(conn.Ping(ctx).Err())
			all.Done()
			all.Wait() // keep it, so that nobody is given the same
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// pinged is the error of a PING. A server that refuses it is there.
func pinged(err error) error {
	if err != nil && pingRefused.MatchString(err.Error()) {
		return nil
	}
	return err
}

var pingRefused = regexp.MustCompile(`NOPERM.*'ping'`)
