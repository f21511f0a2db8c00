package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/embedded"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

var (
	_ cache.Store = (*redisstore.Store)(nil)
	_ cache.Store = (*redisstore.Redis)(nil)
)

// open opens a connection for one worker, so that commands share one connection.
func open(t *testing.T, addr string, change ...func(*redisstore.Options)) *redisstore.Redis {
	t.Helper()
	redisstore.DiscardClientLog()
	options := redisstore.Options{Workers: 1, Name: "cachelab-test"}
	for _, c := range change {
		c(&options)
	}
	r, err := redisstore.OpenAt(t.Context(), addr, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func startEmbedded(t *testing.T) *embedded.Server {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// onEach runs a test on a real Redis, on the embedded one, and through a proxy that does nothing yet.
func onEach(t *testing.T, test func(*testing.T, *redisstore.Redis)) {
	t.Run("redis-server", func(t *testing.T) { test(t, open(t, redistest.Start(t).Addr())) })
	t.Run("embedded", func(t *testing.T) { test(t, open(t, startEmbedded(t).Addr())) })
	t.Run("proxy", func(t *testing.T) {
		test(t, open(t, redistest.StartProxy(t, startEmbedded(t).Addr()).Addr()))
	})
}

func TestGetSetLockUnlock(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		ctx := t.Context()
		for _, key := range []string{"product:42:price", "", "\x00\r\n\xff"} {
			for _, value := range []string{"19.99", "", "\x00\r\n$-1\r\n\xff"} {
				if got, found, err := r.Get(ctx, key); got != "" || found || err != nil {
					t.Errorf("GET of an absent key: %q, %v, %v", got, found, err)
				}
				if replaced, found, err := r.Set(ctx, key, "before", time.Minute); replaced != "" || found || err != nil {
					t.Errorf("SET of an absent key: it replaced %q, %v, %v", replaced, found, err)
				}
				if replaced, found, err := r.Set(ctx, key, value, time.Minute); replaced != "before" || !found || err != nil {
					t.Errorf("SET over a value: it replaced %q, %v, %v", replaced, found, err)
				}
				if replaced, found, err := r.Set(ctx, key, value, time.Minute); replaced != value || !found || err != nil {
					t.Errorf("the next SET: it replaced %q, %v, %v, want %q", replaced, found, err, value)
				}
				if got, found, err := r.Get(ctx, key); got != value || !found || err != nil {
					t.Errorf("GET: %q, %v, %v, want %q", got, found, err, value)
				}
				if err := r.Forget(ctx, key, anyValue); err != nil {
					t.Error(err)
				}
			}
			lock := cache.LockKey(key)
			if holder, err := r.Lock(ctx, lock, "A", time.Minute); holder != "A" || err != nil {
				t.Errorf("A locks: %q, %v", holder, err)
			}
			if holder, err := r.Lock(ctx, lock, "A", time.Minute); holder != "A" || err != nil {
				t.Errorf("A locks again: %q, %v, want its own token", holder, err)
			}
			if holder, err := r.Lock(ctx, lock, "B", time.Minute); holder != "A" || err != nil {
				t.Errorf("B locks: %q, %v, want A", holder, err)
			}
			if released, err := r.Unlock(ctx, lock, "B"); released || err != nil {
				t.Errorf("B unlocks: %v, %v, want no", released, err)
			}
			if released, err := r.Unlock(ctx, lock, "A"); !released || err != nil {
				t.Errorf("A unlocks: %v, %v, want yes", released, err)
			}
			if released, err := r.Unlock(ctx, lock, "A"); released || err != nil {
				t.Errorf("A unlocks again: %v, %v, want no", released, err)
			}
		}
	})
}

func TestGetTTLTellsHowLongTheValueHasLeft(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		ctx := t.Context()
		if value, left, found, err := r.GetTTL(ctx, "key"); value != "" || left != 0 || found || err != nil {
			t.Errorf("an absent key: %q, %v, %v, %v", value, left, found, err)
		}
		if _, _, err := r.Set(ctx, "key", "value", time.Minute); err != nil {
			t.Fatal(err)
		}
		if value, left, found, err := r.GetTTL(ctx, "key"); value != "value" || left > time.Minute || left < 50*time.Second || !found || err != nil {
			t.Errorf("%q, %v, %v, %v, want the value and about a minute", value, left, found, err)
		}
	})
}

// What PTTL says of a key that has just expired, and of one that never will.
func TestGetTTLOfTheOddAnswers(t *testing.T) {
	for answer, want := range map[string]time.Duration{"-2": 0, "-1": -1, "0": 0, "7": 7 * time.Millisecond} {
		server := redistest.StartScript(t, func(command []string) string {
			switch strings.ToUpper(command[0]) {
			case "GET":
				return redistest.Bulk("value")
			case "PTTL":
				return ":" + answer + "\r\n"
			}
			return redistest.Absent(command)
		})
		r := open(t, strings.TrimPrefix(server, "redis://"))
		if value, left, found, err := r.GetTTL(t.Context(), "key"); value != "value" || left != want || !found || err != nil {
			t.Errorf("PTTL %s: %q, %v, %v, %v, want %v", answer, value, left, found, err, want)
		}
	}
}

// Nothing newer is overwritten, and only the own lock is deleted.
func TestStoreAndUnlock(t *testing.T) {
	for _, test := range []struct {
		name         string
		before, lock string // "" for absent
		want         cache.Stored
		value, left  string // afterwards
	}{
		{name: "the lock is ours, the key is absent", lock: "A", want: cache.Stored{Stored: true, Released: true}, value: "new"},
		{name: "the lock is ours, there is a value", before: "old", lock: "A",
			want: cache.Stored{Stored: true, Released: true, Replaced: "old", Found: true}, value: "new"},
		{name: "the lock is another's, the key is absent", lock: "B", want: cache.Stored{Stored: true}, value: "new", left: "B"},
		{name: "the lock is another's, there is a value", before: "newer", lock: "B", value: "newer", left: "B"},
		{name: "the lock is gone, the key is absent", want: cache.Stored{Stored: true}, value: "new"},
		{name: "the lock is gone, there is a value", before: "newer", value: "newer"},
		{name: "there is the empty value", before: "\x00", lock: "A", want: cache.Stored{Stored: true, Released: true, Found: true}, value: "new"},
	} {
		onStoreAndUnlock(t, test.name, func(t *testing.T, s cache.Store) {
			ctx := t.Context()
			if test.before != "" {
				if _, _, err := s.Set(ctx, "key", strings.Trim(test.before, "\x00"), time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			if test.lock != "" {
				if _, err := s.Lock(ctx, "lock", test.lock, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := s.StoreAndUnlock(ctx, "key", "new", 300*time.Millisecond, "lock", "A")
			if err != nil || stored != test.want {
				t.Errorf("got %+v, %v, want %+v", stored, err, test.want)
			}
			if value, found, err := s.Get(ctx, "key"); value != test.value || !found || err != nil {
				t.Errorf("afterwards there is %q, %v, %v, want %q", value, found, err, test.value)
			}
			if left, _, err := s.Get(ctx, "lock"); left != test.left || err != nil {
				t.Errorf("afterwards the lock is %q, %v, want %q", left, err, test.left)
			}
		})
	}
}

// onStoreAndUnlock runs a test on a real Redis, on the embedded one, and on the store in memory, which does the same.
func onStoreAndUnlock(t *testing.T, name string, test func(*testing.T, cache.Store)) {
	t.Run("redis-server: "+name, func(t *testing.T) { test(t, open(t, redistest.Start(t).Addr())) })
	t.Run("embedded: "+name, func(t *testing.T) { test(t, open(t, startEmbedded(t).Addr())) })
	t.Run("memory: "+name, func(t *testing.T) { test(t, cachetest.NewStore()) })
}

func TestKeysAndLocksExpireInRealTime(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		ctx := t.Context()
		started := time.Now()
		if _, _, err := r.Set(ctx, "key", "value", 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if _, found, err := r.Get(ctx, "key"); !found || err != nil {
			t.Errorf("not there right after SET: %v, %v", found, err)
		}
		if err := r.AwaitExpiry(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took < 299*time.Millisecond {
			t.Errorf("expired after %v, want 300 ms", took)
		}
		if _, found, err := r.Get(ctx, "key"); found || err != nil {
			t.Errorf("still there after its expiry: %v, %v", found, err)
		}
		if replaced, found, err := r.Set(ctx, "key", "value", time.Minute); replaced != "" || found || err != nil {
			t.Errorf("SET after the expiry: it replaced %q, %v, %v", replaced, found, err)
		}
	})
}

// The words on the wire are the lab's promise: PX, not EX, and the lock in one command.
func TestCommandsOnTheWire(t *testing.T) {
	server := redistest.Start(t)
	r := open(t, server.Addr())
	monitor, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	fmt.Fprint(monitor, "MONITOR\r\n")
	lines := bufio.NewScanner(monitor)
	lines.Scan() // +OK

	ctx := t.Context()
	token := strings.Repeat("T", 26)
	if _, err := r.Lock(ctx, "product:42:price:filling", token, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Set(ctx, "product:42:price", "19.99", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"SET" "product:42:price:filling" "` + token + `" "NX" "GET" "PX" "10000"`,
		`"SET" "product:42:price" "19.99" "GET" "PX" "3000"`,
	} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Errorf("on the wire: %s, want %s", lines.Text(), want)
		}
	}
}

// strategy is fixed over a Redis.
func strategy(r *redisstore.Redis, load cache.Loader) *cache.Fixed {
	return &cache.Fixed{
		Aside:       cache.Aside{Store: r, Backend: load, Probe: cache.NoProbe{}, TTL: time.Minute},
		Lock:        cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken},
		WaitTimeout: 11 * time.Second,
	}
}

type loader func() (string, error)

func (l loader) Load(context.Context, string) (string, error) { return l() }

// With a connection that is really cut after the server has executed the command.
func TestLostRepliesOnARealConnection(t *testing.T) {
	tests := []struct {
		cut  string
		want cache.Counts
	}{
		{"NX", cache.Counts{Misses: 3, Polls: 1, Acquired: 1, Released: 1, StoreErrors: 1, Tolerated: 1, BackendCalls: 1, SetsAbsent: 1}},
		{"EVAL", cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, Tolerated: 1, BackendCalls: 1, SetsAbsent: 1}},
		// The SET ended the cycle, but nobody knows.
		{"19.99", cache.Counts{Misses: 2, Acquired: 1, Released: 1, StoreErrors: 1, SetsUnanswered: 1, BackendCalls: 1}},
	}
	for _, test := range tests {
		t.Run(test.cut, func(t *testing.T) {
			proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
			r := open(t, proxy.Addr())
			proxy.CutReply(test.cut)
			started := time.Now()
			result, err := strategy(r, loader(func() (string, error) { return "19.99", nil })).Get(t.Context(), "key")
			if err != nil || result.Value != "19.99" {
				t.Errorf("got %q, %v", result.Value, err)
			}
			if result.Counts != test.want {
				t.Errorf("counts: got %+v, want %+v", result.Counts, test.want)
			}
			if took := time.Since(started); took > 5*time.Second {
				t.Errorf("took %v: it waited for itself", took)
			}
			if holder, err := r.Locked(t.Context(), "key:filling"); holder != nil || err != nil {
				t.Errorf("lock afterwards: %v, %v", holder, err)
			}
		})
	}
}

func TestASilentRedisIsAnErrorSoonAndNoMiss(t *testing.T) {
	proxy := redistest.StartProxy(t, startEmbedded(t).Addr())
	r := open(t, proxy.Addr())
	proxy.Mute(true)
	calls := 0
	started := time.Now()
	result, err := strategy(r, loader(func() (string, error) { calls++; return "", nil })).Get(t.Context(), "key")
	if err == nil || result.Outcome != cache.Failed || calls != 0 {
		t.Errorf("got %v, %v, %d backend calls", result, err, calls)
	}
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestASlowRedisIsOnlySlow(t *testing.T) {
	proxy := redistest.StartProxy(t, startEmbedded(t).Addr())
	r := open(t, proxy.Addr())
	proxy.Delay(100 * time.Millisecond)
	result, err := strategy(r, loader(func() (string, error) { return "19.99", nil })).Get(t.Context(), "key")
	want := cache.Counts{Misses: 2, Acquired: 1, Released: 1, BackendCalls: 1, SetsAbsent: 1}
	if err != nil || result.Counts != want {
		t.Errorf("got %+v, %v, want %+v", result.Counts, err, want)
	}
}

func TestLockedTellsTheHolderAndItsTime(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		if holder, err := r.Locked(t.Context(), "lock"); holder != nil || err != nil {
			t.Errorf("free: %v, %v", holder, err)
		}
		if _, err := r.Lock(t.Context(), "lock", "A", time.Minute); err != nil {
			t.Fatal(err)
		}
		holder, err := r.Locked(t.Context(), "lock")
		if err != nil || holder == nil || holder.Token != "A" || holder.TTL > time.Minute || holder.TTL < 59*time.Second {
			t.Errorf("held: %v, %v", holder, err)
		}
	})
}

// anyValue takes each value for the lab's.
func anyValue(string) bool { return true }
