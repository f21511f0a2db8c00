package redisstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// reach opens the Redis behind a URL.
func reach(t *testing.T, url string, change ...func(*redisstore.Options)) *redisstore.Redis {
	t.Helper()
	redisstore.DiscardClientLog()
	target, err := redisstore.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	options := redisstore.Options{Target: target, Workers: 5, Name: "cachelab-test", Keys: []string{hotKey, hotLock}}
	for _, c := range change {
		c(&options)
	}
	r, err := redisstore.Open(t.Context(), options)
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

// roundTrip sends each command with one effect, and tells what does not come back as it should.
func roundTrip(ctx context.Context, r *redisstore.Redis, key, lock string) error {
	var errs []error
	expect := func(what string, ok bool, err error) {
		if err != nil || !ok {
			errs = append(errs, errors.Join(errors.New(what), err))
		}
	}
	_, found, err := r.Get(ctx, key)
	expect("GET of an absent key", !found, err)
	holder, err := r.Lock(ctx, lock, "A", time.Minute)
	expect("lock", holder == "A", err)
	_, found, err = r.Set(ctx, key, "19.99", time.Minute)
	expect("SET of an absent key", !found, err)
	value, left, found, err := r.GetTTL(ctx, key)
	expect("GET and PTTL", value == "19.99" && left > 50*time.Second && found, err)
	released, err := r.Unlock(ctx, lock, "A")
	expect("unlock", released, err)
	expect("PUBLISH", true, r.Publish(ctx, lock))
	expect("forget", true, r.Forget(ctx, key, anyValue))
	return errors.Join(errs...)
}

// sentOnce is what Redis counts for one roundTrip: its last step is the housekeeping's.
var sentOnce = redisstore.Commands{Get: 4, Set: 2, Eval: 1, Del: 2, Publish: 1}

// onEachTopology runs a test at each way into a cluster and into a master behind sentinels.
func onEachTopology(t *testing.T, test func(t *testing.T, url, where string)) {
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		for _, node := range redistest.StartCluster(t, 3).Nodes {
			test(t, "redis://"+node.Addr(), " (cluster of 3)")
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		w := redistest.StartWatched(t, 2, 3)
		for _, sentinel := range w.Sentinels {
			test(t, "redis://"+sentinel.Addr(), " (sentinel: master mymaster at "+w.Master.Addr()+")")
		}
		test(t, w.URL()+"/3?master_name=mymaster", "/3 (sentinel: master mymaster at "+w.Master.Addr()+")")
		test(t, w.Master.URL(), "") // who is watched may be asked directly
	})
}

func TestEachWayInLeadsToTheSameCommandsAndTheirExactCount(t *testing.T) {
	onEachTopology(t, func(t *testing.T, url, where string) {
		r := reach(t, url)
		if got, want := r.Where(), strings.TrimSuffix(strings.TrimSuffix(url, "?master_name=mymaster"), "/3")+where; got != want {
			t.Errorf("it is at %s, want %s", got, want)
		}
		since := r.TakeCensus(t.Context())
		if err := roundTrip(t.Context(), r, hotKey, hotLock); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if got, standing := r.Count(t.Context(), since); got != sentOnce || standing != redisstore.Exact {
			t.Errorf("%s: Redis counted %+v (%s), want %+v", url, got, standing, sentOnce)
		}
		stranger := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{strings.TrimPrefix(r.Where()[:strings.IndexAny(r.Where()+" ", " ")], "redis://")}})
		defer stranger.Close()
		if where == "" || strings.HasPrefix(where, " (cluster") {
			since = r.TakeCensus(t.Context())
			if err := stranger.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			if _, standing := r.Count(t.Context(), since); standing != redisstore.Shared {
				t.Errorf("%s: with a stranger the count is %s", url, standing)
			}
		}
	})
}

// watchers count what telemetry sees of the workers' commands, and where they were sent on.
type watchers struct {
	commands atomic.Int32
	mu       sync.Mutex
	words    []string
	to       string
}

func (w *watchers) options(o *redisstore.Options) {
	o.Instrument = func(c *redis.Client) error { c.AddHook(w); return nil }
	o.Redirected = func(ctx context.Context, word, addr string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.words, w.to = append(w.words, word), addr
	}
}

func (w *watchers) see(ctx context.Context, cmd redis.Cmder) {
	_, text := redisstore.CommandOf(ctx)
	if word, _, _ := strings.Cut(text, " "); strings.EqualFold(word, cmd.Name()) { // and no handshake
		w.commands.Add(1)
	}
}

func (w *watchers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *watchers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.see(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (w *watchers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.see(ctx, cmds[0])
		return next(ctx, cmds)
	}
}

// A command that a node sends on is one command to who watches and is executed once.
func TestACommandThatIsSentOnIsOneCommand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	var w watchers
	r := reach(t, "redis://"+cluster.Nodes[0].Addr(), w.options)
	owner := reach(t, "redis://"+cluster.Nodes[1].Addr()) // another client, which moves the slots
	lock := "{" + hotKey + "}:filling"

	since := r.TakeCensus(t.Context())
	_, to, err := owner.MoveSlot(t.Context(), hotKey, func() {
		if err := roundTrip(t.Context(), r, hotKey, lock); err != nil { // each key is absent, so each is asked for elsewhere
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// GET, SET NX, SET, GET and PTTL, EVAL; a GET of the housekeeping is not told of. PUBLISH goes anywhere.
	if want := strings.Fields("ASK ASK ASK ASK ASK ASK"); strings.Join(w.words, " ") != strings.Join(want, " ") || w.to != to {
		t.Errorf("sent on with %q to %s, want %q to %s", w.words, w.to, want, to)
	}
	if n := w.commands.Load(); n != 6 {
		t.Errorf("%d commands were seen, want 6", n)
	}
	if got, _ := r.Count(t.Context(), since); got != sentOnce {
		t.Errorf("Redis counted %+v, want %+v", got, sentOnce)
	}

	w.words = nil
	w.commands.Store(0)
	since = r.TakeCensus(t.Context())
	if err := roundTrip(t.Context(), r, hotKey, lock); err != nil {
		t.Error(err)
	}
	for _, word := range w.words { // until the client has looked around
		if word != "MOVED" {
			t.Errorf("sent on with %q", w.words)
		}
	}
	if got, _ := r.Count(t.Context(), since); got != sentOnce || len(w.words) == 0 || w.commands.Load() != 6 {
		t.Errorf("Redis counted %+v, want %+v; sent on with %q; %d commands were seen, want 6", got, sentOnce, w.words, w.commands.Load())
	}
}

// In the middle of a slot's move a node may have one of two keys. The command waits for the end of the move.
func TestACommandOnTwoKeysWaitsForTheEndOfTheMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	again := make(chan struct{}, 100)
	r := reach(t, "redis://"+cluster.Nodes[0].Addr(), func(o *redisstore.Options) {
		o.Redirected = func(_ context.Context, word, _ string) {
			if word == "TRYAGAIN" {
				again <- struct{}{}
			}
		}
	})
	owner, lock := reach(t, "redis://"+cluster.Nodes[1].Addr()), "{"+hotKey+"}:filling"
	if _, err := r.Lock(t.Context(), lock, "A", time.Minute); err != nil {
		t.Fatal(err)
	}
	var stored cache.Stored
	done := make(chan error, 1)
	_, _, err := owner.MoveSlot(t.Context(), hotKey, func() {
		go func() {
			var err error
			stored, err = r.StoreAndUnlock(t.Context(), hotKey, "19.99", time.Minute, lock, "A")
			done <- err
		}()
		<-again
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if want := (cache.Stored{Stored: true, Released: true}); stored != want {
		t.Errorf("%+v, want %+v", stored, want)
	}
}

func TestTheLockIsInTheKeysSlotWhereItMustBe(t *testing.T) {
	t.Parallel()
	cluster := reach(t, "redis://"+redistest.StartCluster(t, 3).Nodes[0].Addr())
	alone := reach(t, redistest.Start(t).URL())
	for _, test := range []struct{ key, lock string }{
		{"product:42:price", "{product:42:price}:filling"},
		{"{product:42}:price", "{product:42}:price:filling"},
		{"a{b}c", "a{b}c:filling"},
		{"a{b}{c", "a{b}{c:filling"},
		{"a}b", ""}, {"{}a", ""}, {"a{b", ""}, {"}{", ""}, {"{", ""},
	} {
		lock, err := cluster.LockKey(test.key, true)
		if (err == nil) != (test.lock != "") || err == nil && lock != test.lock || err != nil && !strings.Contains(err.Error(), test.key) {
			t.Errorf("the lock of %q is %q, %v, want %q", test.key, lock, err, test.lock)
		}
		if err == nil {
			if _, err := cluster.StoreAndUnlock(t.Context(), test.key, "19.99", time.Second, lock, "A"); err != nil {
				t.Errorf("%q and %q in one command: %v", test.key, lock, err)
			}
		}
		for r, inOne := range map[*redisstore.Redis]bool{cluster: false, alone: true} {
			if lock, err := r.LockKey(test.key, inOne); lock != cache.LockKey(test.key) || err != nil {
				t.Errorf("the lock of %q on %s is %q, %v", test.key, r.Where(), lock, err)
			}
		}
	}
}

// What cannot be used is named within 3 s: what was tried, what came back, what to do.
func TestASentinelOrAClusterThatCannotServeIsNamed(t *testing.T) {
	cluster := func(t *testing.T, args ...string) (url string, stop func()) {
		c := redistest.StartCluster(t, 3, append(args, "--cluster-node-timeout", "500")...)
		owner, err := c.Owner(t.Context(), hotKey)
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range c.Nodes {
			if node != owner {
				url = "redis://" + node.Addr()
			}
		}
		return url, func() {
			if err := owner.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	slotless := func(t *testing.T, url string) {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		node := redis.NewClient(options)
		defer node.Close()
		redistest.Eventually(t, func() bool {
			return !strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_slots_fail:0")
		})
	}
	for _, test := range []struct {
		name string
		url  func(t *testing.T) string
		want []string
	}{
		{"a sentinel without master", func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, nil).Addr()
		}, []string{"tried SENTINEL MASTERS", "the sentinel knows no master", "SENTINEL MONITOR"}},
		{"a sentinel with several masters", func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"orders": "127.0.0.1:1", "prices": "127.0.0.1:2"}).Addr()
		}, []string{"the sentinel knows orders, prices", "?master_name=NAME"}},
		{"a master that the sentinel does not know", func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"orders": "127.0.0.1:1"}).Addr() + "?master_name=prices"
		}, []string{`the sentinel knows no master "prices", but orders`, "?master_name=NAME"}},
		{"a sentinel whose master is gone", func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"prices": "127.0.0.1:1"}).Addr()
		}, []string{"(sentinel: master prices at 127.0.0.1:1)", "dial tcp 127.0.0.1:1: connect: connection refused", "start it"}},
		{"a cluster that has just lost a master", func(t *testing.T) string {
			url, stop := cluster(t)
			stop()
			return url
		}, []string{"(cluster of 3)"}}, // refused connections, or already CLUSTERDOWN
		{"a cluster that is down", func(t *testing.T) string {
			url, stop := cluster(t)
			stop()
			slotless(t, url)
			return url
		}, []string{"(cluster of 3)"}},
		{"a slot without a node", func(t *testing.T) string {
			c := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
			for _, n := range c.Nodes {
				client := redis.NewClient(&redis.Options{Addr: n.Addr()})
				defer client.Close()
				slot := client.ClusterKeySlot(t.Context(), hotKey).Val()
				err := client.Do(t.Context(), "CLUSTER", "DELSLOTS", slot).Err()
				if err != nil && !strings.Contains(err.Error(), "already unassigned") { // it has heard of it
					t.Fatal(err)
				}
			}
			return "redis://" + c.Nodes[0].Addr()
		}, []string{"CLUSTERDOWN Hash slot not served", "CLUSTER SLOTS"}},
		{"a cluster that nobody made", func(t *testing.T) string {
			return redistest.StartLoneNode(t).URL()
		}, []string{"(cluster of 0)", "CLUSTERDOWN Hash slot not served"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := test.url(t)
			target, err := redisstore.ParseTarget(url)
			if err != nil {
				t.Fatal(err)
			}
			redisstore.DiscardClientLog()
			started := time.Now()
			err = serve(t.Context(), target)
			took := time.Since(started)
			var refusal *redisstore.Refusal
			if !errors.As(err, &refusal) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one refusal", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			t.Logf("%v: %v", took.Round(time.Millisecond), err)
		})
	}
}

// serve is what the lab does before a run of fixed.
func serve(ctx context.Context, target redisstore.Target) error {
	r, err := redisstore.Open(ctx, redisstore.Options{Target: target, Workers: 50, Name: "cachelab-test", Keys: []string{hotKey, hotLock}})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Forget(ctx, hotKey, anyValue); err != nil {
		return err
	}
	return r.Preflight(ctx, redisstore.Trial{Key: hotKey, Value: "19.99", Lock: hotLock})
}

// A socket leads to one node; the others have addresses.
func TestAClusterIsEnteredByTheSocketOfANode(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	redistest.StartCluster(t, 1, "--unixsocket", socket)
	r := reach(t, "unix://"+socket)
	if got, want := r.Where(), "unix://"+socket+" (cluster of 1)"; got != want {
		t.Errorf("it is at %s, want %s", got, want)
	}
	since := r.TakeCensus(t.Context())
	if err := roundTrip(t.Context(), r, hotKey, hotLock); err != nil {
		t.Error(err)
	}
	if got, standing := r.Count(t.Context(), since); got != sentOnce || standing != redisstore.Exact {
		t.Errorf("Redis counted %+v (%s), want %+v", got, standing, sentOnce)
	}
}
