package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Commands that the workers send, as Redis counts them. A release is one EVAL, and inside it one GET and, if
// the lock was still ours, one DEL.
type Commands struct {
	Get  int `json:"get"`
	Set  int `json:"set"`
	Eval int `json:"eval"`
	Del  int `json:"del"`
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
	taken       time.Time
	commands    map[string]int
	connections int // ever accepted
	dialled     int // of those, by us
	err         error
}

// TakeCensus reads the server's counters. A server that refuses is no error here: the count says so.
func (r *Redis) TakeCensus(ctx context.Context) Census {
	c := Census{taken: time.Now(), dialled: int(r.dialled.Load())}
	if r.options.Commands != nil {
		c.commands = r.options.Commands()
		return c
	}
	var stats string
	if stats, c.err = r.keeper.Info(ctx, "commandstats").Result(); c.err != nil {
		return c
	}
	c.commands = map[string]int{}
	for _, m := range commandStat.FindAllStringSubmatch(stats, -1) {
		c.commands[m[1]], _ = strconv.Atoi(m[2])
	}
	if stats, c.err = r.keeper.Info(ctx, "stats").Result(); c.err != nil {
		return c
	}
	m := connectionStat.FindStringSubmatch(stats)
	if m == nil {
		c.err = fmt.Errorf("INFO stats has no total_connections_received")
		return c
	}
	c.connections, c.err = strconv.Atoi(m[1])
	return c
}

var (
	commandStat    = regexp.MustCompile(`(?m)^cmdstat_(\w+):calls=(\d+)`)
	connectionStat = regexp.MustCompile(`(?m)^total_connections_received:(\d+)`)
)

// Count returns how many of the workers' commands Redis executed since the census, by its own account.
func (r *Redis) Count(ctx context.Context, since Census) (Commands, Standing) {
	now := r.TakeCensus(ctx)
	if since.err != nil || now.err != nil {
		return Commands{}, NotAvailable
	}
	diff := func(name string) int { return now.commands[name] - since.commands[name] }
	count := Commands{Get: diff("get"), Set: diff("set"), Eval: diff("eval"), Del: diff("del")}
	if r.options.Commands != nil {
		return count, Exact
	}
	if now.commands["get"] < since.commands["get"] || now.commands["set"] < since.commands["set"] {
		return Commands{}, NotAvailable // the counters were reset, or the server was restarted
	}
	strangers, err := r.strangers(ctx, now.taken.Sub(since.taken))
	switch {
	case err != nil:
		return count, Shared // nobody knows
	case strangers > 0, now.connections-since.connections > now.dialled-since.dialled:
		return count, Shared
	}
	return count, Exact
}

// strangers counts the connected clients of another name that sent a command within the last d.
func (r *Redis) strangers(ctx context.Context, d time.Duration) (int, error) {
	list, err := r.keeper.ClientList(ctx).Result()
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(list) {
		fields := map[string]string{}
		for _, f := range strings.Fields(line) {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = value
		}
		idle, err := strconv.Atoi(fields["idle"])
		if fields["name"] != r.options.Name && (err != nil || time.Duration(idle)*time.Second <= d) {
			n++
		}
	}
	return n, nil
}
