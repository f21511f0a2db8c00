package cachetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cachelab/app/cache"
)

// Parts are what one instance of a strategy is made of. Several stand for processes.
type Parts struct {
	cache.Aside
	Lock        cache.FillLock
	Listener    cache.Listener
	WaitTimeout time.Duration
}

// Promise is one of what a strategy should keep. Check is called in a synctest bubble with a maker of instances, and returns
// what was not kept.
type Promise struct {
	Name  string
	Check func(ctx context.Context, newStrategy func(Parts) cache.Strategy) error
}

// Promises is the suite that each strategy passes, but for its exceptions.
func Promises() []Promise {
	return []Promise{
		{"one call however many callers", oneCall(1, 300)},
		{"one call however many processes", oneCall(3, 100)},
		{"a cancelled first caller fails nobody", cancelledFirst},
		{"a panic is an error, and the next call works", panics},
		{"lost replies cost nobody the value", lostReplies},
		{"a dead winner costs one take-over", deadWinner},
		{"a late winner: a value in each cycle, calls bounded", lateWinner},
		{"an error is shared", sharedError},
		{"an error is not remembered", forgottenError},
		{"a cold key is filled, then hit", coldKey},
		{"any bytes are a value", anyBytes},
	}
}

const (
	promiseKey  = "key"
	promiseFill = 250 * time.Millisecond
	promiseLock = 2 * time.Second
)

// parts of an instance on the store.
func parts(store cache.Store, listener cache.Listener, load cache.Loader) Parts {
	return Parts{Aside: cache.Aside{Store: store, Backend: load, Probe: cache.NoProbe{}, TTL: 3 * time.Second}, Listener: listener,
		Lock: cache.FillLock{TTL: promiseLock, NewToken: cache.RandomToken}, WaitTimeout: promiseLock + time.Second}
}

type answered struct {
	cache.Result
	err  error
	took time.Duration
}

// ask sends callers to each instance at the same instant.
func ask(ctx context.Context, instances []cache.Strategy, callers int) []answered {
	answers := make([]answered, len(instances)*callers)
	started := time.Now()
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			result, err := instances[i%len(instances)].Get(ctx, promiseKey)
			answers[i] = answered{*result, err, time.Since(started)}
		})
	}
	wg.Wait()
	return answers
}

// allHave is what is wrong with the answers, if not all have the value.
func allHave(answers []answered, value string) error {
	for i, a := range answers {
		if a.err != nil || a.Value != value {
			return fmt.Errorf("caller %d got %q, %v", i, a.Value, a.err)
		}
	}
	return nil
}

func calls(l *Loader, least, most int) error {
	if n := l.Calls(); n < least || n > most {
		return fmt.Errorf("%d backend calls, want %d to %d", n, least, most)
	}
	return nil
}

func several(n int, one func() cache.Strategy) (all []cache.Strategy) {
	for range n {
		all = append(all, one())
	}
	return all
}

func oneCall(instances, callers int) func(context.Context, func(Parts) cache.Strategy) error {
	return func(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
		store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, "9.99")}
		all := several(instances, func() cache.Strategy { return newStrategy(parts(store, store, loader)) })
		return errors.Join(allHave(ask(ctx, all, callers), "9.99"), calls(loader, 1, 1))
	}
}

func cancelledFirst(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, "9.99")}
	s := newStrategy(parts(store, store, loader))
	first, leave := context.WithTimeout(ctx, promiseFill/2)
	defer leave()
	var gone []answered
	var wg sync.WaitGroup
	wg.Go(func() { gone = ask(first, []cache.Strategy{s}, 1) })
	time.Sleep(time.Millisecond) // in the bubble: the first caller's call is on its way
	answers := ask(ctx, []cache.Strategy{s}, 20)
	wg.Wait()
	var err error
	if !errors.Is(gone[0].err, context.DeadlineExceeded) || gone[0].took != promiseFill/2 {
		err = fmt.Errorf("the caller that left got %v after %v", gone[0].err, gone[0].took)
	}
	return errors.Join(err, allHave(answers, "9.99"))
}

func panics(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{}
	loader.Answer = func(ctx context.Context, n int) (string, error) {
		if n == 1 {
			time.Sleep(promiseFill)
			panic("a nil map")
		}
		return Takes(promiseFill, "9.99")(ctx, n)
	}
	s := newStrategy(parts(store, store, loader))
	panicked := 0
	for i, a := range ask(ctx, []cache.Strategy{s}, 10) {
		switch {
		case a.err == nil && a.Value == "9.99":
		case a.err != nil && strings.Contains(a.err.Error(), "panic: a nil map"):
			panicked++
		default:
			return fmt.Errorf("caller %d got %q, %v", i, a.Value, a.err)
		}
	}
	if panicked == 0 {
		return errors.New("nobody was told of the panic")
	}
	return errors.Join(allHave(ask(ctx, []cache.Strategy{s}, 1), "9.99"), free(store))
}

// free is an error if the fill lock is held.
func free(s *Store) error {
	if token := s.Peek(cache.LockKey(promiseKey)); token != "" {
		return fmt.Errorf("the fill lock is held by %q", token)
	}
	return nil
}

// losing is a store that executes each write and loses the reply to the first of its kind.
type losing struct {
	*Store
	mu   sync.Mutex
	lost map[string]bool
}

var errLost = errors.New("connection reset")

func (l *losing) reply(kind string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[kind] {
		return err
	}
	l.lost[kind] = true
	return errLost
}

func (l *losing) Set(ctx context.Context, key, value string, ttl time.Duration) (string, bool, error) {
	replaced, found, err := l.Store.Set(ctx, key, value, ttl)
	return replaced, found, l.reply("SET", err)
}

func (l *losing) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := l.Store.Lock(ctx, key, token, ttl)
	return holder, l.reply("SET NX PX", err)
}

func (l *losing) Unlock(ctx context.Context, key, token string) (bool, error) {
	released, err := l.Store.Unlock(ctx, key, token)
	return released, l.reply("DEL", err)
}

func (l *losing) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	stored, err := l.Store.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	return stored, l.reply("SET, DEL", err)
}

func (l *losing) Publish(ctx context.Context, channel string) error {
	return l.reply("PUBLISH", l.Store.Publish(ctx, channel))
}

func lostReplies(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, "9.99")}
	s := newStrategy(parts(&losing{Store: store, lost: map[string]bool{}}, store, loader))
	answers := ask(ctx, []cache.Strategy{s}, 20)
	time.Sleep(promiseFill)
	return errors.Join(allHave(answers, "9.99"), free(store), allHave(ask(ctx, []cache.Strategy{s}, 1), "9.99"))
}

func deadWinner(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, "9.99")}
	if _, err := store.Lock(ctx, cache.LockKey(promiseKey), "dead", promiseLock); err != nil {
		return err
	}
	all := several(2, func() cache.Strategy { return newStrategy(parts(store, store, loader)) })
	return errors.Join(allHave(ask(ctx, all, 10), "9.99"), calls(loader, 1, 1), free(store))
}

func lateWinner(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{Answer: Takes(promiseLock*5/4, "9.99")}
	all := several(2, func() cache.Strategy { return newStrategy(parts(store, store, loader)) })
	err := errors.Join(allHave(ask(ctx, all, 10), "9.99"), calls(loader, 1, 2))
	if store.Peek(promiseKey) == "" {
		err = errors.Join(err, errors.New("no value is stored"))
	}
	return err
}

func sharedError(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	down := errors.New("down")
	store, loader := NewStore(), &Loader{Answer: func(context.Context, int) (string, error) {
		time.Sleep(promiseFill)
		return "", down
	}}
	s := newStrategy(parts(store, store, loader))
	for i, a := range ask(ctx, []cache.Strategy{s}, 10) {
		if !errors.Is(a.err, down) {
			return fmt.Errorf("caller %d got %v", i, a.err)
		}
	}
	return calls(loader, 1, 1)
}

func forgottenError(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{}
	loader.Answer = func(ctx context.Context, n int) (string, error) {
		if n == 1 {
			return "", errors.New("down")
		}
		return Takes(promiseFill, "9.99")(ctx, n)
	}
	s := newStrategy(parts(store, store, loader))
	if first := ask(ctx, []cache.Strategy{s}, 1); first[0].err == nil {
		return errors.New("the failed call is no error")
	}
	return errors.Join(allHave(ask(ctx, []cache.Strategy{s}, 1), "9.99"), calls(loader, 2, 2), free(store))
}

func coldKey(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, "9.99")}
	s := newStrategy(parts(store, store, loader))
	for _, want := range []cache.Outcome{cache.Filled, cache.Hit} {
		a := ask(ctx, []cache.Strategy{s}, 1)[0]
		if a.err != nil || a.Value != "9.99" || a.Outcome != want {
			return fmt.Errorf("got %q, %s, %v, want %s", a.Value, a.Outcome, a.err, want)
		}
	}
	return errors.Join(calls(loader, 1, 1), free(store))
}

func anyBytes(ctx context.Context, newStrategy func(Parts) cache.Strategy) error {
	for _, value := range []string{"", "\x00\xff\r\n$-1\r\n"} {
		store, loader := NewStore(), &Loader{Answer: Takes(promiseFill, value)}
		s := newStrategy(parts(store, store, loader))
		if err := errors.Join(allHave(ask(ctx, []cache.Strategy{s}, 3), value), allHave(ask(ctx, []cache.Strategy{s}, 1), value)); err != nil {
			return err
		}
	}
	return nil
}
