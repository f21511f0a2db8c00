package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// awaken takes the next wake, within a time that only a fault exceeds.
func awaken(t *testing.T, wakes <-chan cache.Wake, want cache.Wake) {
	t.Helper()
	select {
	case by := <-wakes:
		if by != want {
			t.Fatalf("woken by %s, want %s", by, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not woken, want %s", want)
	}
}

func TestListenersAreWoken(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		l := r.NewListener()
		first, stop := l.Listen("lock")
		awaken(t, first, cache.Confirmed)
		second, stopSecond := l.Listen("lock") // the subscription is there
		awaken(t, second, cache.Confirmed)
		other, stopOther := l.Listen("another lock")
		awaken(t, other, cache.Confirmed)
		defer stopOther()
		if err := r.Publish(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		awaken(t, first, cache.Message)
		awaken(t, second, cache.Message)
		stop()
		if err := r.Publish(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		awaken(t, second, cache.Message)
		stopSecond()
		// Whatever was published before is heard before what is published now.
		if err := r.Publish(t.Context(), "another lock"); err != nil {
			t.Fatal(err)
		}
		awaken(t, other, cache.Message)
		if len(first) != 0 || len(second) != 0 || len(other) != 0 {
			t.Error("one is woken that does not listen, or twice")
		}
		kept, stopKept := l.Listen("lock") // for a while it is kept
		defer stopKept()
		if len(kept) != 1 {
			t.Error("a subscription that was just used is not there any more")
		}
	})
}

func TestEachListenerHasASubscriptionOfItsOwn(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	var ears []<-chan cache.Wake
	for range 3 {
		wakes, stop := r.NewListener().Listen("lock")
		defer stop()
		awaken(t, wakes, cache.Confirmed)
		ears = append(ears, wakes)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n, err := client.PubSubNumSub(t.Context(), "lock").Result(); err != nil || n["lock"] != 3 {
		t.Errorf("%v, %v, want 3 subscriptions", n, err)
	}
	if err := r.Publish(t.Context(), "lock"); err != nil {
		t.Fatal(err)
	}
	for _, wakes := range ears {
		awaken(t, wakes, cache.Message)
	}
}

func TestAfterALostConnectionListenersLook(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	r := open(t, proxy.Addr())
	wakes, stop := r.NewListener().Listen("lock")
	defer stop()
	awaken(t, wakes, cache.Confirmed)
	proxy.Cut()
	awaken(t, wakes, cache.Reconnect)
	direct := open(t, proxy.Addr())
	if err := direct.Publish(t.Context(), "lock"); err != nil {
		t.Fatal(err)
	}
	awaken(t, wakes, cache.Message)
}

func TestARefusedSubscriptionDoesNotWake(t *testing.T) {
	server := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "resetchannels")
	r := open(t, server.Addr())
	wakes, stop := r.NewListener().Listen("lock")
	defer stop()
	if err := r.Publish(t.Context(), "lock"); err == nil {
		t.Error("PUBLISH is permitted")
	}
	select {
	case by := <-wakes:
		t.Errorf("woken by %s", by)
	case <-time.After(100 * time.Millisecond):
	}
}

// fleet are n instances of woken, each with flights, connections and a subscription of its own, as processes have them.
type fleet struct {
	loader *cachetest.Loader
	all    []*cache.Woken
	probe  *works
}

// works keeps what flights did.
type works struct {
	cache.NoProbe
	onTheirWay sync.WaitGroup // some end after their answer

	mu   sync.Mutex
	sum  cache.Counts
	sent cache.Sent
}

func (w *works) Flight(ctx context.Context, _ string) (context.Context, func(*cache.Result, error)) {
	w.onTheirWay.Add(1)
	return ctx, func(r *cache.Result, _ error) {
		defer w.onTheirWay.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sum.Add(r.Counts)
		w.sent.Add(r.Sent)
	}
}

func newFleet(t *testing.T, n int, fill time.Duration, one func() (cache.Store, cache.Listener)) *fleet {
	f := &fleet{loader: &cachetest.Loader{Answer: cachetest.Takes(fill, "19.99")}, probe: &works{}}
	for range n {
		store, listener := one()
		f.all = append(f.all, &cache.Woken{Aside: cache.Aside{Store: store, Backend: f.loader, Probe: f.probe, TTL: time.Minute}, Listener: listener,
			Lock: cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken}, WaitTimeout: 11 * time.Second})
	}
	return f
}

// ask sends callers to each instance, and returns how long after the backend's answer the last of them had its own.
func (f *fleet) ask(t *testing.T, callers int) (took time.Duration) {
	t.Helper()
	started := time.Now()
	var wg sync.WaitGroup
	for _, s := range f.all {
		for range callers {
			wg.Go(func() {
				if r, err := s.Get(t.Context(), "key"); r.Value != "19.99" || err != nil {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
	}
	wg.Wait()
	took = time.Since(started)
	f.probe.onTheirWay.Wait()
	return took
}

func TestAFleetOfWokenMakesOneCall(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		f := newFleet(t, 8, 250*time.Millisecond, func() (cache.Store, cache.Listener) { return r, r.NewListener() })
		f.ask(t, 62)
		if f.loader.Calls() != 1 || f.probe.sum.WokenByLook != 0 || f.probe.sum.WokenByMessage+f.probe.sum.Rechecked == 0 {
			t.Errorf("%d calls, %+v", f.loader.Calls(), f.probe.sum)
		}
		s := f.probe.sent
		if n := s.Get + s.Lock + s.Set + s.Unlock + s.StoreAndUnlock + s.Publish; n > 8*62/5 {
			t.Errorf("%d commands for %d requests, want at most 0.2 each", n, 8*62)
		}
	})
}

// The subscription's connection is cut while flights wait.
func TestACutSubscriptionCostsNoSecondCall(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	store := open(t, server.Addr(), func(o *redisstore.Options) { o.Workers = 8 })
	ears := open(t, proxy.Addr()).NewListener()
	f := newFleet(t, 4, time.Second, func() (cache.Store, cache.Listener) { return store, ears })
	warm, stop := ears.Listen("key:filling")
	awaken(t, warm, cache.Confirmed)
	defer stop()
	done := make(chan time.Duration)
	go func() { done <- f.ask(t, 10) }()
	for deadline := time.Now().Add(5 * time.Second); f.loader.Calls() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody calls")
		}
	}
	proxy.Cut()
	took := <-done
	if f.loader.Calls() != 1 || took > time.Second+700*time.Millisecond {
		t.Errorf("%d calls, took %v: want one, and at most one look more than the fill's second", f.loader.Calls(), took)
	}
	if n := f.probe.sum.WokenByReconnect; n == 0 {
		t.Errorf("nobody looked when the connection was there again: %+v", f.probe.sum)
	}
}

// Whatever the ACL refuses of channels, the fill is shared.
func TestRefusedChannelsCostOnlyTime(t *testing.T) {
	server := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "resetchannels")
	r := open(t, server.Addr(), func(o *redisstore.Options) { o.Workers = 8 })
	f := newFleet(t, 4, 100*time.Millisecond, func() (cache.Store, cache.Listener) { return r, r.NewListener() })
	f.ask(t, 10)
	sum := f.probe.sum
	if f.loader.Calls() != 1 || sum.RingsFailed == 0 || sum.SetsAbsent != 1 || sum.ReleasesRefused != 0 || sum.WokenByMessage != 0 {
		t.Errorf("%d calls, %+v", f.loader.Calls(), sum)
	}
}
