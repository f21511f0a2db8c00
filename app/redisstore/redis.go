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
	dialTimeout    = time.Second
	commandTimeout = time.Second
	answerTimeout  = 2 * time.Second        // for a Redis given by URL to connect and answer the first PING
	autoTimeout    = 300 * time.Millisecond // for the one on localhost, if there is one
)

// Options say how to open a Redis.
type Options struct {
	Target  Target
	Workers int // the pool is sized for them
	// Name is what the connections call themselves, unique to the run: other clients of the server have other names.
	Name string
	// Instrument, if set, is called with the workers' client once its connections are warm, so that dials and
	// handshakes are not seen.
	Instrument func(*redis.Client) error
	// Commands, if set, counts for a server that keeps no command statistics (the embedded one).
	Commands func() map[string]int
	// Starts tells how often such a server was started. The others name themselves anew with each start.
	Starts func() int
}

// Redis is an open connection: one client for the workers, and one for housekeeping, which is not measured.
type Redis struct {
	*Store
	*listener
	client  *redis.Client
	keeper  *redis.Client
	options Options
	others  []*listener
	dialled atomic.Int64 // connections made by the run, those that failed or were closed again included
}

// DiscardClientLog keeps the client library's own log off the terminal: whatever goes wrong comes back as an
// error too. The setting is the process's.
func DiscardClientLog() { redis.SetLogger(discard{}) }

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

// Probe reports whether the Redis of an auto target answers, and if not, why.
func Probe(ctx context.Context, t Target) error {
	r := &Redis{options: Options{Target: t}}
	r.keeper = r.newClient(1, 0)
	defer r.keeper.Close()
	err := ping(ctx, r.keeper, autoTimeout)
	switch answer := redis.Error(nil); {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return r.refused(ctx, "PING", err)
	}
	return fmt.Errorf("none at %s: %w", t.options.Addr, err)
}

// Open connects, and warms a connection for each worker up to a limit. The error says what was tried and what
// to do. The caller must Close.
func Open(ctx context.Context, options Options) (*Redis, error) {
	r := &Redis{options: options}
	r.client = r.newClient(min(options.Workers, maxPool), Passage(options.Workers))
	r.keeper = r.newClient(1, 0)
	r.Store, r.listener = NewStore(r.client), newListener(r.keeper)
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

func (r *Redis) start(ctx context.Context) error {
	if err := ping(ctx, r.keeper, answerTimeout); err != nil {
		return r.refused(ctx, "PING", err)
	}
	if err := warm(ctx, r.client); err != nil {
		return r.refused(ctx, fmt.Sprintf("PING on %d connections", r.client.Options().PoolSize), err)
	}
	if r.options.Instrument != nil {
		if err := r.options.Instrument(r.client); err != nil {
			return err
		}
	}
	if r.options.Workers > maxPool {
		r.client.AddHook(newQueue(r.options.Workers))
	}
	return nil
}

// nameRefused is how servers refuse CLIENT SETNAME, with and without the subcommand.
var nameRefused = regexp.MustCompile(`(?i)(NOPERM|unknown (sub)?command).*\bclient\b`)

func (r *Redis) newClient(pool int, passage time.Duration) *redis.Client {
	o := clientOptions(r.options.Target, pool, r.options.Name)
	o.ReadTimeout += passage
	o.PoolTimeout += passage
	o.Dialer = r.dial(o.TLSConfig)
	return redis.NewClient(o)
}

// dial counts each connection that the server has accepted, whatever becomes of it: one whose handshake fails is ours, too.
func (r *Redis) dial(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := dialer.DialContext(ctx, network, addr)
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

// NewListener returns a listener with a connection of its own, as another process would have. It is closed with r.
func (r *Redis) NewListener() cache.Listener {
	l := newListener(r.keeper)
	r.others = append(r.others, l)
	return l
}

// Close closes the connections.
func (r *Redis) Close() error {
	var errs []error
	for _, l := range append(r.others, r.listener) {
		errs = append(errs, l.close())
	}
	return errors.Join(append(errs, r.client.Close(), r.keeper.Close())...)
}

func clientOptions(t Target, pool int, name string) *redis.Options {
	o := *t.options
	o.ClientName = name
	o.DisableIdentity = true // no CLIENT SETINFO with each connection
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.MaxRetries = -1 // a retry hides what happened: the strategy's loop retries
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.DialerRetries = dialTimeout, 1
	o.ReadTimeout, o.WriteTimeout = commandTimeout, commandTimeout
	o.PoolSize, o.PoolTimeout = pool, queueTimeout
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, pool, pool
	return &o
}

func ping(ctx context.Context, client *redis.Client, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	started := time.Now()
	err := pinged(client.Ping(limited).Err())
	if slow := net.Error(nil); ctx.Err() == nil && errors.As(err, &slow) && slow.Timeout() {
		return fmt.Errorf("no answer within %v", time.Since(started).Round(100*time.Millisecond))
	}
	return err
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
