// Package cache is the heart of the lab: cache-aside strategies over a key-value store.
//
// broken.go is the herd, fixed.go is its cure. Both are made of the steps in request.go, and know neither
// the Redis client nor OpenTelemetry: a store, a backend and a probe are handed to them.
package cache

import (
	"context"
	"errors"
	"slices"
	"time"
)

// ErrWaitTimeout is what a waiter gets that saw no fill within its limit. It never falls back to calling the
// backend: that would be the herd again, only later.
var ErrWaitTimeout = errors.New("gave up waiting for the fill")

// ErrRefused is the kind of error with which a store answers (errors.Is): the command was not executed.
var ErrRefused = errors.New("the store refused the command")

// A Strategy answers requests for cached values.
type Strategy interface {
	// Get returns the value of key, from the store or from the backend. The Result tells what it took, also when the error is
	// not nil, and is the caller's own. Get returns soon after ctx ends, and gives a lock of its own back first. A release that
	// the store refuses, or does not answer in three tries, is counted: that lock may stay until its TTL ends.
	Get(ctx context.Context, key string) (*Result, error)
}

// A Store is the shared cache. An error that is no [ErrRefused] means that the outcome is unknown: the command may
// have been executed. A store must not retry by itself, or the counts would not be what was asked.
type Store interface {
	// Get returns the value of key, and whether there is one. An error is never a miss.
	Get(ctx context.Context, key string) (value string, found bool, err error)

	// GetTTL is Get, and tells in the same round trip how long the value has left: 0 when it has just expired, negative when
	// it never will.
	GetTTL(ctx context.Context, key string) (value string, left time.Duration, found bool, err error)

	// Set stores value for ttl (at least 1 ms). It returns the value that it replaced, and whether there was one.
	Set(ctx context.Context, key, value string, ttl time.Duration) (replaced string, found bool, err error)

	// Lock stores token at key for ttl unless a token is there already, in one atomic command. It returns
	// the token that is there afterwards; the caller holds the lock if that is its own.
	Lock(ctx context.Context, key, token string, ttl time.Duration) (holder string, err error)

	// Unlock deletes key if it still holds token, in one atomic command, and reports whether it did.
	Unlock(ctx context.Context, key, token string) (released bool, err error)

	// StoreAndUnlock stores value at key for ttl if lockKey still holds token or key is absent, so that nothing newer is
	// overwritten, and deletes lockKey if it still holds token, in one atomic command.
	StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (Stored, error)

	// Publish tells those who listen to channel, in all processes, that there is something to look at. See [Listener].
	Publish(ctx context.Context, channel string) error
}

// Stored is what became of a value that was stored under a lock.
type Stored struct {
	Replaced string // the value that it replaced
	Found    bool   // there was one
	Stored   bool   // false: the lock was lost, and a newer value is there
	Released bool   // false: the lock was lost
}

// A Loader calls the backend for the value of key: the slow thing that the cache protects.
type Loader interface {
	Load(ctx context.Context, key string) (value string, err error)
}

// A Probe is told about the stretches of a request that are longer than one command. The context it returns
// is used for everything inside the stretch; end is called once, with the facts so far, which are the request's own and may be
// read until it returns, and the error that ended the stretch, if one did.
type Probe interface {
	// Miss begins when GET found nothing and ends when the request is answered.
	Miss(ctx context.Context, key string) (inner context.Context, end func(*Result, error))
	// Wait begins when the fill lock was found held, and ends with the value, the lock, or an error.
	// The holder is the token found in the lock, "" when the answer was lost.
	Wait(ctx context.Context, holder string) (inner context.Context, end func(*Result, error))
	// Refresh begins when a request has taken the fill lock to refresh a value in the background, and ends with the refresh,
	// usually after the request. The context's values are those of the request. The result is in that of no request.
	Refresh(ctx context.Context, key string) (inner context.Context, end func(*Result, error))
	// Join is Wait for a flight of this process, which has missed: miss is the context that Miss returned to it.
	Join(ctx, miss context.Context) (inner context.Context, end func(*Result, error))
	// Wake is told why a waiting flight looks. The context is that of its Wait.
	Wake(ctx context.Context, by Wake)
	// Flight begins with the work that callers of a key in one process share, and may end after all of them. The context's
	// values are those of the first caller's request. The result's counts are in that of no request.
	Flight(ctx context.Context, key string) (inner context.Context, end func(*Result, error))
}

// NoProbe is a Probe that does nothing.
type NoProbe struct{}

// Miss implements [Probe].
func (NoProbe) Miss(ctx context.Context, _ string) (context.Context, func(*Result, error)) {
	return ctx, func(*Result, error) {}
}

// Wait implements [Probe].
func (NoProbe) Wait(ctx context.Context, _ string) (context.Context, func(*Result, error)) {
	return ctx, func(*Result, error) {}
}

// Refresh implements [Probe].
func (NoProbe) Refresh(ctx context.Context, _ string) (context.Context, func(*Result, error)) {
	return ctx, func(*Result, error) {}
}

// Join implements [Probe].
func (NoProbe) Join(ctx, _ context.Context) (context.Context, func(*Result, error)) {
	return ctx, func(*Result, error) {}
}

// Wake implements [Probe].
func (NoProbe) Wake(context.Context, Wake) {}

// Flight implements [Probe].
func (NoProbe) Flight(ctx context.Context, _ string) (context.Context, func(*Result, error)) {
	return ctx, func(*Result, error) {}
}

// Outcome says how a request ended.
type Outcome string

// The outcomes of a request.
const (
	Hit    Outcome = "hit"    // found by the first GET, or by the re-check of the first lock attempt
	Waited Outcome = "waited" // lost the lock at least once, or joined a flight that missed, and got the value without calling the backend
	Filled Outcome = "filled" // called the backend
	Failed Outcome = "error"  // no value
)

// Outcomes lists all of them, in the order in which they are shown.
func Outcomes() []Outcome { return []Outcome{Hit, Filled, Waited, Failed} }

// Result is what one request got, and what it took.
type Result struct {
	Value   string
	Outcome Outcome
	Counts
	// Sent are the store's commands, answered or not.
	Sent Sent
	// Errors are those of the steps, also of those that did not fail the request.
	Errors Errors
	// Waited is the time between finding the lock held, or joining a flight that missed, and having the value or the lock.
	Waited time.Duration
	// Loaded is when the backend call returned a value; zero if this request made none.
	Loaded time.Time
}

// Sent counts the commands that were sent to the store, by its methods.
type Sent struct{ Get, Set, Lock, Unlock, StoreAndUnlock, Publish int }

// Add adds d to s.
func (s *Sent) Add(d Sent) {
	s.Get += d.Get
	s.Set += d.Set
	s.Lock += d.Lock
	s.Unlock += d.Unlock
	s.StoreAndUnlock += d.StoreAndUnlock
	s.Publish += d.Publish
}

// Total is how many commands that is. One that is sent together with another, as GET with its PTTL, counts with it.
func (s Sent) Total() int { return s.Get + s.Set + s.Lock + s.Unlock + s.StoreAndUnlock + s.Publish }

// Errors are the latest error of each kind of step, nil for none.
type Errors struct{ Get, Lock, Set, Unlock, Load, Publish error }

// All returns those that there are.
func (e Errors) All() []error {
	return slices.DeleteFunc([]error{e.Get, e.Lock, e.Load, e.Set, e.Unlock, e.Publish}, func(err error) bool { return err == nil })
}

// Counts are the steps of one request, or the sum over many.
type Counts struct {
	Hits   int // GETs that found a value: first ones, polls and re-checks alike
	Misses int // GETs that found none
	Polls  int // GETs of waiters
	// Expired are those of the misses by which a refresh found, under the lock, that the value it was to replace was gone.
	Expired int

	Acquired  int // lock attempts that got the lock
	Held      int // lock attempts that found it held by another
	Rechecked int // re-checks under the lock that were hits: no backend call
	Released  int // locks given back
	Lost      int // locks that were no longer ours to give back
	LostEarly int // those of the lost whose TTL had not passed: somebody else deleted them
	Timeouts  int // waiters past their limit

	BackendCalls  int
	BackendErrors int // those of the calls that failed
	StoreErrors   int // store commands that failed
	Tolerated     int // those of them that changed nothing: polls, lock attempts and releases that were sent again, and PUBLISHes

	SetsAbsent         int // fills that found the key absent
	SetsReplaced       int // fills that replaced a value
	SetsRefused        int // fills that the store refused: not cached
	SetsLate           int // fills whose lock was lost and whose key had a newer value: not stored
	SetsUnanswered     int // fills without an answer: whether they are cached, and ended a cycle, nobody knows
	ReleasesRefused    int // releases that the store refused: the lock stays until its TTL ends
	ReleasesUnanswered int // releases without an answer, in spite of further tries

	WokenByMessage   int // looks of waiting flights after a ring
	WokenByLook      int // those without one, as none came for a while
	WokenByReconnect int // those after a lost subscription was confirmed anew
	RingsFailed      int // PUBLISHes that failed: nobody was woken by them
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	c.Hits += d.Hits
	c.Misses += d.Misses
	c.Polls += d.Polls
	c.Expired += d.Expired
	c.Acquired += d.Acquired
	c.Held += d.Held
	c.Rechecked += d.Rechecked
	c.Released += d.Released
	c.Lost += d.Lost
	c.LostEarly += d.LostEarly
	c.Timeouts += d.Timeouts
	c.BackendCalls += d.BackendCalls
	c.BackendErrors += d.BackendErrors
	c.StoreErrors += d.StoreErrors
	c.Tolerated += d.Tolerated
	c.SetsAbsent += d.SetsAbsent
	c.SetsReplaced += d.SetsReplaced
	c.SetsRefused += d.SetsRefused
	c.SetsLate += d.SetsLate
	c.SetsUnanswered += d.SetsUnanswered
	c.ReleasesRefused += d.ReleasesRefused
	c.ReleasesUnanswered += d.ReleasesUnanswered
	c.WokenByMessage += d.WokenByMessage
	c.WokenByLook += d.WokenByLook
	c.WokenByReconnect += d.WokenByReconnect
	c.RingsFailed += d.RingsFailed
}

// A Read says why a GET is sent. Decorators of a store find it in the context; stores do not care.
type Read int

// The reads of a request.
const (
	First   Read = iota // the request's first GET
	Recheck             // the winner's second GET, under the lock
	Poll                // a waiter's GET
	Renewal             // the second GET, under the lock, of who is to refresh the value that the first one found
)

type readKey struct{}

// ReadOf returns why the GET with this context is sent.
func ReadOf(ctx context.Context) Read {
	why, _ := ctx.Value(readKey{}).(Read)
	return why
}
