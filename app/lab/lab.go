// Package lab is the wiring of a run: Redis, backend, strategy, herd and report, closed in reverse.
package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/embedded"
	"cachelab/app/facts"
	"cachelab/app/fleet"
	"cachelab/app/modes"
	"cachelab/app/redisserver"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/app/results"
	"cachelab/telemetry"
)

// Config is what a run needs to know. The command line validates it.
type Config struct {
	Workers     int // of each process
	Processes   int // that are started here, and whose workers ask; 0 of both: those of this process do
	Joiners     int // processes that come from elsewhere
	JoinWait    time.Duration
	Rounds      int
	Key         string
	TTL         time.Duration
	TTLJitter   float64
	LockTTL     time.Duration
	WaitTimeout time.Duration
	Ahead       modes.Ahead    // but for Delta, which is the lab's
	Backend     backend.Config // where BackendURL is set, what that one is like
	BackendURL  string         // of a backend that is a process of its own; "" for one inside
	Redis       redisstore.Target
	Quiet       bool // no line for each step

	Telemetry telemetry.Switch
	Version   string // of the program
	// LookupEnv is os.LookupEnv, for the OTEL_* variables; Console is where OTEL_*_EXPORTER=console writes.
	LookupEnv func(string) (string, bool)
	Console   io.Writer
	Links     facts.Links
	Records   string // folder in which runs are recorded; "" for none
	// Results, if set, keeps what each request brought back, and the settings with it.
	Results  *results.Writer
	Settings []results.Setting
	// Spans and Reader, if set, get what is exported, and are there without any receiver.
	Spans  sdktrace.SpanProcessor
	Reader sdkmetric.Reader
	// Modes are those of all runs of the lab: before the first it is found out whether Redis permits what they send.
	Modes []modes.Mode
	// RunID, if not "", is the run's; else it gets one. Joiners know it.
	RunID string
	// Told are the settings that other processes of a run are told, by the names of their flags. They may hold passwords.
	Told []fleet.Setting
	// Differs says what differs from them in the settings of a joiner's user; "" for nothing.
	Differs func([]fleet.Setting) string
	// Capture keeps the spans of the first round of each run for pictures; Waterfall prints one after each run.
	Capture, Waterfall bool
	// Watch, if set, is called with each mode when its run begins, and what it returns is told of it.
	Watch func(mode string) Watcher
}

// Lab holds what runs have in common: the Redis to use. Make one with [Open], and Close it.
type Lab struct {
	config   Config
	instance string // names this process in telemetry
	process  int    // the number of this process, from 1; 0 if it is the only one, or coordinates
	terminal *report.Terminal
	where    string               // where the Redis is and what it has turned out to be; "" before it was opened
	embedded *embedded.Server     // nil if a real Redis is used
	server   *redisserver.Server  // of a drill that stops its Redis; nil otherwise
	pair     *redisserver.Pair    // of a drill that fails over; nil otherwise
	cluster  *redisserver.Cluster // of a drill that moves slots; nil otherwise
	sentOn   atomic.Int64         // commands that a node of a cluster has sent on to another
	shared   *sharedBackend       // nil unless this process serves the backend to others of its runs
}

// Open chooses the Redis, and starts the embedded one if need be; one line says so.
func Open(ctx context.Context, config Config, terminal *report.Terminal) (*Lab, error) {
	redisstore.DiscardClientLog()
	telemetry.DiscardLog()
	l := &Lab{config: config, instance: rand.Text(), terminal: terminal}
	switch {
	case config.Redis.Embedded:
		return l, l.embed("")
	case config.Redis.Auto:
		if err := redisstore.Probe(ctx, config.Redis); err != nil {
			return l, l.embed(fmt.Sprintf(" (%v)", err))
		}
	}
	return l, nil
}

// embed uses the embedded Redis from now on; a line says so, and why.
func (l *Lab) embed(why string) (err error) {
	if l.embedded, err = embedded.Start(); err != nil {
		return err
	}
	l.terminal.Notice("redis: using the embedded one" + why)
	return nil
}

// Close stops the Redis servers that are the lab's.
func (l *Lab) Close() error {
	var errs []error
	if l.shared != nil {
		errs = append(errs, l.shared.close())
	}
	if l.server != nil {
		errs = append(errs, l.server.Close())
	}
	if l.pair != nil {
		errs = append(errs, l.pair.Close())
	}
	if l.cluster != nil {
		errs = append(errs, l.cluster.Close())
	}
	if l.embedded != nil {
		errs = append(errs, l.embedded.Close())
	}
	return errors.Join(errs...)
}

func (l *Lab) openRedis(ctx context.Context, id string, instrument func(*redis.Client) error) (r *redisstore.Redis, err error) {
	key := l.config.Key
	options := redisstore.Options{Target: l.config.Redis, Workers: l.config.Workers, Herd: l.config.allWorkers(), Name: "cachelab-" + id, Instrument: instrument,
		Keys: []string{key, cache.LockKey(key)}, Redirected: func(ctx context.Context, word, addr string) {
			l.sentOn.Add(1)
			telemetry.Redirected(ctx, word, addr)
		}}
	if l.splits() {
		options.Workers = 1 // they are other processes'
	}
	if l.process > 0 {
		options.Name += fmt.Sprintf("-p%d", l.process)
	}
	switch {
	case l.server != nil:
		r, err = redisstore.OpenAt(ctx, l.server.Addr(), options)
	case l.pair != nil:
		options.Master = l.pair.Master
		r, err = redisstore.Open(ctx, options)
	case l.cluster != nil:
		r, err = redisstore.OpenAt(ctx, l.cluster.Nodes[0].Addr(), options)
	case l.embedded != nil:
		options.Commands, options.Starts = l.embedded.Commands, l.embedded.Starts
		return redisstore.OpenAt(ctx, l.embedded.Addr(), options)
	default:
		r, err = redisstore.Open(ctx, options)
	}
	if err == nil {
		l.where = r.Where()
	}
	return r, err
}

// owns says whether a drill has servers of its own.
func (l *Lab) owns() bool { return l.server != nil || l.pair != nil || l.cluster != nil }

func (l *Lab) redisName() string {
	if l.embedded != nil && !l.owns() {
		return "embedded"
	}
	return cmp.Or(l.where, l.config.Redis.Location())
}

// settings are the lines that a run starts with.
func (l *Lab) settings(title, who string, locks bool, id string) string {
	c := l.config
	text := fmt.Sprintf("%s: %s on %q, TTL %v", title, who, c.Key, c.TTL)
	if c.TTLJitter > 0 {
		text += fmt.Sprintf(" +-%.4g%%", c.TTLJitter*100)
	}
	if locks {
		text += fmt.Sprintf(", lock TTL %v, wait timeout %v", c.LockTTL, c.WaitTimeout)
	}
	text += "\n  backend "
	if c.BackendURL != "" {
		text += "at " + c.BackendURL + ": "
	}
	return text + backendText(c.Backend) + fmt.Sprintf("; redis %s; run %s", l.redisName(), id)
}

// newRunID names a run as its user wants it, or so that it can be told from others, and be read: scenario, time, and 4 random
// characters.
func (l *Lab) newRunID(scenario modes.Scenario, started time.Time) string {
	if l.config.RunID != "" {
		return l.config.RunID
	}
	return fmt.Sprintf("%s-%s-%s", scenario, started.UTC().Format("20060102-150405"), strings.ToLower(rand.Text()[:4]))
}
