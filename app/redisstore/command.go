package redisstore

import (
	"cmp"
	"context"
)

// Command is a command that the store sends for the workers, by the name that it has in spans, metrics and step lines. The
// store names it in the context that it is sent with, so that who watches the client need not guess it from the bytes.
type Command string

// The commands.
const (
	CommandGet            Command = "GET"
	CommandGetTTL         Command = "GET, PTTL" // a GET to who watches
	CommandLock           Command = "SET NX PX"
	CommandSet            Command = "SET"
	CommandUnlock         Command = "DEL"
	CommandStoreAndUnlock Command = "SET, DEL"
	CommandPublish        Command = "PUBLISH"
)

// commands is the only table of what goes over the wire, and of what Redis counts for it: the commands inside a script too,
// but not PTTL, which the housekeeping sends as well.
var commands = map[Command]struct {
	name     Command  // that it is seen under, if not its own
	text     string   // keys and values left out
	adds     Commands // whenever the server executes it
	stored   Commands // more, when it stored the value
	released Commands // more, when the lock was the sender's
}{
	CommandGet:            {text: "GET ?", adds: Commands{Get: 1}},
	CommandGetTTL:         {name: CommandGet, text: "GET ?; PTTL ?", adds: Commands{Get: 1}},
	CommandLock:           {text: "SET ? ? NX GET PX ?", adds: Commands{Set: 1}},
	CommandSet:            {text: "SET ? ? GET PX ?", adds: Commands{Set: 1}},
	CommandUnlock:         {text: "EVAL ? 1 ? ?", adds: Commands{Get: 1, Eval: 1}, released: Commands{Del: 1}},
	CommandStoreAndUnlock: {text: "EVAL ? 2 ? ? ? ? ?", adds: Commands{Get: 1, Eval: 1}, stored: Commands{Set: 1}, released: Commands{Del: 1}},
	CommandPublish:        {text: "PUBLISH ? ?", adds: Commands{Publish: 1}},
}

// Adds returns what n executions of c add to Redis's own counters, when stored of them stored a value (which a plain SET
// always does), and released of them found the lock to be the sender's.
func (c Command) Adds(n, stored, released int) Commands {
	return commands[c].adds.times(n).Plus(commands[c].stored.times(stored)).Plus(commands[c].released.times(released))
}

type commandKey struct{}

// in returns the context that c is sent with.
func (c Command) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, commandKey{}, c)
}

// CommandOf returns the name of the command that ctx is for, and its text as it is sent, keys and values left out; both are
// "" when the store did not send it, and when a node sent it on: that is the same command.
func CommandOf(ctx context.Context) (name, text string) {
	if ctx.Value(sentOn{}) != nil {
		return "", ""
	}
	c, _ := ctx.Value(commandKey{}).(Command)
	return string(cmp.Or(commands[c].name, c)), commands[c].text
}
