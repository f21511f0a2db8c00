package observe_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
	"cachelab/app/observe"
	"cachelab/telemetry"
)

// watched is a bridge whose metrics and spans can be read at any time.
type watched struct {
	*observe.Bridge
	service *backend.Service
	reader  *sdkmetric.ManualReader
	spans   *tracetest.SpanRecorder
}

func watch(t *testing.T, c backend.Config) watched {
	t.Helper()
	w := watched{service: backend.New(c), reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	set, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.Off, Run: "test", Lookup: os.LookupEnv, Reader: w.reader, Spans: w.spans})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if w.Bridge, err = observe.New(set, telemetry.Labels{Mode: "test", Scenario: "rounds"}, "test", herd.JudgeHerd, w.service); err != nil {
		t.Fatal(err)
	}
	return w
}

// counters reads the counters that are not 0 by "name result".
func (w watched) counters(t *testing.T) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || !strings.HasPrefix(m.Name, "cachelab.") {
				continue
			}
			for _, p := range sum.DataPoints {
				name := strings.TrimPrefix(m.Name, "cachelab.")
				for _, key := range []attribute.Key{telemetry.Result, telemetry.Outcome} {
					if v, ok := p.Attributes.Value(key); ok {
						name += " " + v.AsString()
					}
				}
				if p.Value != 0 {
					all[name] = p.Value
				}
			}
		}
	}
	return all
}

func (w watched) want(t *testing.T, when string, want map[string]int64) {
	t.Helper()
	got := w.counters(t)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %d, want %d", when, name, got[name], want[name])
		}
	}
	for name, n := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is %d, want 0", when, name, n)
		}
	}
}

func (w watched) aside(s cache.Store) cache.Aside {
	return cache.Aside{Store: w.Store(s), Backend: w.Loader(w.service), Probe: w.Probe(cache.NoProbe{}), TTL: time.Minute}
}

func (w watched) fixed(a cache.Aside) *cache.Fixed {
	return &cache.Fixed{Aside: a, Lock: cache.FillLock{TTL: 10 * time.Second, NewToken: w.NewToken}, WaitTimeout: 12 * time.Second}
}

// absent lets a herd begin: there is nothing to wait for.
type absent struct{}

func (absent) AwaitExpiry(context.Context, string) error { return nil }

// run starts a round of workers, and returns what waits for its ledger.
func (w watched) run(t *testing.T, s cache.Strategy, workers int) func() herd.Ledger {
	t.Helper()
	var ledger herd.Ledger
	var done sync.WaitGroup
	done.Go(func() {
		h := herd.Herd{Strategy: s, Key: "key", Workers: workers, Rounds: 1, Keeper: absent{}, Observer: w.Observer(herd.NoObserver{})}
		var err error
		if ledger, err = h.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return func() herd.Ledger {
		done.Wait()
		return ledger
	}
}

// held is a backend whose calls are in flight until they are let go.
type held struct {
	next    cache.Loader
	began   chan struct{}
	release chan struct{}
}

func (h held) Load(ctx context.Context, key string) (string, error) {
	h.began <- struct{}{}
	<-h.release
	return h.next.Load(ctx, key)
}

// While the whole herd is in the backend, its GETs, its misses and its calls are counted already, and no answer.
func TestStepsAreCountedWhenTheyHappen(t *testing.T) {
	w := watch(t, backend.Config{})
	h := held{w.service, make(chan struct{}), make(chan struct{})}
	aside := w.aside(cachetest.NewStore())
	aside.Backend = w.Loader(h)
	wait := w.run(t, &cache.Broken{Aside: aside}, 5)
	for range 5 {
		<-h.began
	}
	w.want(t, "in flight", map[string]int64{"gets miss": 5, "misses": 5, "backend.calls": 5})
	close(h.release)
	l := wait()
	w.want(t, "at the end", map[string]int64{"gets miss": 5, "misses": 5, "backend.calls": 5, "backend.answers ok": 5, "expiries": 1,
		"requests filled": 5, "rounds": 1, "backend.redundant": int64(w.service.Stats().Redundant), "backend.repeated": int64(w.service.Stats().Repeated)})
	if l.BackendCalls != 5 || l.Missed != 5 {
		t.Errorf("ledger %+v", l)
	}
}

// stepsOf is what the counters must come to when all workers are back.
func stepsOf(l herd.Ledger) map[string]int64 {
	all := map[string]int64{}
	for name, n := range map[string]int{
		"gets hit": l.Hits, "gets miss": l.Misses, "polls": l.Polls, "misses": l.Missed, "lock.attempts acquired": l.Acquired,
		"lock.attempts held": l.Held, "lock.rechecks": l.Rechecked, "lock.releases released": l.Released, "lock.releases lost": l.Lost,
		"lock.releases error": l.ReleasesRefused + l.ReleasesUnanswered,
		"lock.timeouts":       l.Timeouts, "expiries": l.Expiries, "backend.calls": l.BackendCalls,
		"backend.answers ok": l.BackendCalls - l.BackendErrors, "rounds": l.Rounds,
	} {
		if n > 0 {
			all[name] = int64(n)
		}
	}
	for outcome, n := range l.Outcomes {
		all["requests "+string(outcome)] = int64(n)
	}
	return all
}

// While one fills and the others wait, the lock's attempts are counted; at the end all is what the ledger holds.
func TestAttemptsAreCountedWhenTheyHappenAndSumsAreTheLedgers(t *testing.T) {
	w := watch(t, backend.Config{})
	h := held{w.service, make(chan struct{}), make(chan struct{})}
	aside := w.aside(cachetest.NewStore())
	aside.Backend = w.Loader(h)
	wait := w.run(t, w.fixed(aside), 5)
	<-h.began
	for w.counters(t)["polls"] < 4 { // the four others found the lock held, and poll
		time.Sleep(time.Millisecond)
	}
	got := w.counters(t)
	if got["lock.attempts acquired"] != 1 || got["lock.attempts held"] < 4 || got["misses"] != 5 || got["backend.calls"] != 1 ||
		got["gets miss"] < 10 || got["lock.releases released"] != 0 || got["expiries"] != 0 {
		t.Errorf("in flight: %v", got)
	}
	close(h.release)
	l := wait()
	w.want(t, "at the end", stepsOf(l))
	if l.BackendCalls != 1 || l.Outcomes[cache.Waited] != 4 {
		t.Errorf("ledger %+v", l)
	}
}

// unanswered loses the replies to the first lock attempts, which were executed.
type unanswered struct {
	cache.Store
	mu   sync.Mutex
	lose int
}

func (u *unanswered) Lock(ctx context.Context, key, token string, ttl time.Duration) (string, error) {
	holder, err := u.Store.Lock(ctx, key, token, ttl)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lose > 0 {
		u.lose--
		return "", errors.New("the reply was lost")
	}
	return holder, err
}

// What only the request learns, at its end, is counted then: that a lock whose reply was lost had been its own.
func TestALockFoundOutAtTheEndIsCountedToo(t *testing.T) {
	w := watch(t, backend.Config{})
	store := &unanswered{Store: cachetest.NewStore(), lose: 9}
	l := w.run(t, w.fixed(w.aside(store)), 1)()
	if l.Acquired != 1 || l.Released != 1 || l.Outcomes[cache.Failed] != 1 || l.BackendCalls != 0 {
		t.Fatalf("ledger %+v", l)
	}
	w.want(t, "at the end", stepsOf(l))
}

// An answer that nobody waited for is unknown, and one that says no is an error: calls = answers all the same.
func TestAnswersAreOkErrorOrUnknown(t *testing.T) {
	fails, err := backend.ParseFailures("2")
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, backend.Config{Failures: fails})
	loader := w.Loader(w.service)
	_, _ = loader.Load(t.Context(), "a")
	_, _ = loader.Load(t.Context(), "b")
	left, leave := context.WithCancel(t.Context())
	_, _ = w.Loader(loaderFunc(func(ctx context.Context, _ string) (string, error) {
		leave()
		return "", context.Cause(ctx)
	})).Load(left, "c")
	w.want(t, "at the end", map[string]int64{"backend.calls": 3, "backend.answers ok": 1, "backend.answers error": 1, "backend.answers unknown": 1})
}

type loaderFunc func(ctx context.Context, key string) (string, error)

func (f loaderFunc) Load(ctx context.Context, key string) (string, error) { return f(ctx, key) }
