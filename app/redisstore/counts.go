package redisstore

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Commands that the workers send, as Redis counts them. What a [Command] adds to them, its Adds says.
type Commands struct {
	Get     int `json:"get"`
	Set     int `json:"set"`
	Eval    int `json:"eval"`
	Del     int `json:"del"`
	Publish int `json:"publish"`
}

// Plus returns the sum.
func (c Commands) Plus(d Commands) Commands {
	return Commands{c.Get + d.Get, c.Set + d.Set, c.Eval + d.Eval, c.Del + d.Del, c.Publish + d.Publish}
}

func (c Commands) times(n int) Commands {
	return Commands{c.Get * n, c.Set * n, c.Eval * n, c.Del * n, c.Publish * n}
}

// Standing says what Redis's own counts are worth as a check.
type Standing string

// The standings of a count.
const (
	Exact        Standing = "exact"         // nobody else used the server
	Shared       Standing = "shared"        // somebody else did, or may have
	NotAvailable Standing = "not available" // the server does not tell
)

// Census is a reading of the server's counters. Two of them make a count: see [Redis.Count].
type Census struct {
	began, ended time.Time // of the reading
	commands     map[string]int
	server       string                   // this start of the server, or of all masters of a cluster
	connections  int                      // ever accepted
	dialled      int                      // of those, by us
	strangers    map[string]time.Duration // clients that are not of the run, by id: how long they were idle, as Redis says
	watched      bool                     // sentinels are among its clients
	err          error
}

// errNameless says that the server refuses names, so its other clients cannot be told from the lab's.
var errNameless = errors.New("the server refuses CLIENT SETNAME")

// TakeCensus reads the server's counters. A server that refuses is no error here: the count says so.
func (r *Redis) TakeCensus(ctx context.Context) Census {
	c := Census{began: time.Now()}
	switch {
	case r.options.Commands != nil:
		c.commands = r.options.Commands()
		if r.options.Starts != nil {
			c.server = strconv.Itoa(r.options.Starts())
		}
	case r.options.Name == "":
		c.err = errNameless
	case r.greetings != nil:
		c.err = r.readBetween(ctx, &c)
	default:
		if c.err = r.read(ctx, &c); !c.watched {
			break
		}
		if r.greetings, c.err = hear(ctx, r.keeper); c.err == nil {
			return r.TakeCensus(ctx)
		}
	}
	c.ended = time.Now()
	c.dialled = int(r.dialled.Load()) // those of the reading too
	return c
}

// read reads the counters of all servers.
func (r *Redis) read(ctx context.Context, c *Census) error {
	c.strangers, c.commands, c.connections = map[string]time.Duration{}, map[string]int{}, 0
	masters, err := r.keeper.masters(ctx)
	if err != nil {
		return err
	}
	var servers []string
	for _, master := range masters {
		server, err := c.add(ctx, master, r.options.Name)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	slices.Sort(servers)
	c.server = strings.Join(servers, " ")
	return nil
}

// maxReadings is how often the counters may be read until no sentinel publishes meanwhile.
const maxReadings = 10

// readBetween reads the counters in between two greetings of the sentinels, and takes these off.
func (r *Redis) readBetween(ctx context.Context, c *Census) error {
	for range maxReadings {
		before, err := r.greetings.count(ctx)
		if err != nil {
			return err
		}
		if err := r.read(ctx, c); err != nil {
			return err
		}
		switch after, err := r.greetings.count(ctx); {
		case err != nil:
			return err
		case before == after:
			c.commands["publish"] -= before
			return nil
		}
	}
	return errors.New("the sentinels publish all the time")
}

// add reads the counters of one server, and returns what names its start.
func (c *Census) add(ctx context.Context, client *redis.Client, name string) (server string, err error) {
	var info, stats, clients string
	if server, err = client.Info(ctx, "server").Result(); err != nil {
		return "", err
	}
	if info, err = client.Info(ctx, "commandstats").Result(); err != nil {
		return "", err
	}
	if stats, err = client.Info(ctx, "stats").Result(); err != nil {
		return "", err
	}
	if clients, err = client.ClientList(ctx).Result(); err != nil {
		return "", err
	}
	server = serverRun.FindString(server)
	for _, m := range commandStat.FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.Atoi(m[2])
		c.commands[m[1]] += calls
	}
	if m := connectionStat.FindStringSubmatch(stats); m != nil {
		connections, _ := strconv.Atoi(m[1])
		c.connections += connections
	}
	c.watched = c.watched || sentinelClient.MatchString(clients)
	for id, idle := range strangers(clients, name) {
		c.strangers[server+" "+id] = idle
	}
	return server, nil
}

var (
	serverRun      = regexp.MustCompile(`(?m)^run_id:\w+`)
	commandStat    = regexp.MustCompile(`(?m)^cmdstat_(\w+):calls=(\d+)`)
	connectionStat = regexp.MustCompile(`(?m)^total_connections_received:(\d+)`)
)

// Count returns how many of the workers' commands Redis executed since the census, by its own account.
func (r *Redis) Count(ctx context.Context, since Census) (Commands, Standing) {
	now := r.TakeCensus(ctx)
	if since.err != nil || now.err != nil || since.server != now.server {
		return Commands{}, NotAvailable
	}
	diff := func(name string) int { return now.commands[name] - since.commands[name] }
	count := Commands{Get: diff("get"), Set: diff("set"), Eval: diff("eval"), Del: diff("del"), Publish: diff("publish")}
	if count.Get < 0 || count.Set < 0 {
		return Commands{}, NotAvailable // the counters were reset
	}
	if r.options.Commands == nil && visited(since, now) {
		return count, Shared
	}
	return count, Exact
}

// visited reports whether another client used the server between two readings, or may have: one that came, one
// that left, or one that stayed and was not idle all the time.
func visited(since, now Census) bool {
	if now.connections-since.connections > now.dialled-since.dialled {
		return true
	}
	for id := range since.strangers {
		if _, stayed := now.strangers[id]; !stayed {
			return true
		}
	}
	for _, idle := range now.strangers {
		if idle <= now.ended.Sub(since.began)+idleError {
			return true
		}
	}
	return false
}

// idleError is how much longer than it was Redis may say that a client was idle: it subtracts two readings of a clock in
// whole seconds, and sets that clock itself up to a second late.
const idleError = 2 * time.Second

// Dialled returns how many connections were made so far.
func (r *Redis) Dialled() int { return int(r.dialled.Load()) }

// Joined tells how many connections another process of the run has made. They are no strangers if their name is this one's,
// followed by a hyphen and more.
func (r *Redis) Joined(connections int) { r.dialled.Add(int64(connections)) }

// strangers finds the clients that are not of the run in the reply to CLIENT LIST, by id, and how long each was idle.
func strangers(clients, name string) map[string]time.Duration {
	all := map[string]time.Duration{}
	for line := range strings.Lines(clients) {
		fields := map[string]string{}
		for _, f := range strings.Fields(line) {
			key, value, _ := strings.Cut(f, "=")
			fields[key] = value
		}
		if own := fields["name"]; own != name && !strings.HasPrefix(own, name+"-") && !housekeeping(fields) {
			idle, _ := strconv.Atoi(fields["idle"]) // in whole seconds
			all[fields["id"]] = time.Duration(idle) * time.Second
		}
	}
	return all
}

// housekeeping tells the servers' own connections from those of clients: a replica's, a sentinel's, and that of a cluster's node
// from which keys move here.
func housekeeping(fields map[string]string) bool {
	return strings.Contains(fields["flags"], "S") || fields["cmd"] == "restore-asking" || sentinelClient.MatchString("name="+fields["name"])
}

// sentinelClient is how sentinels name their connections.
var sentinelClient = regexp.MustCompile(`\bname=sentinel-[0-9a-f]+-(cmd|pubsub)\b`)
