package lab_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/app/internal/redistest"
	"cachelab/app/observe"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// instant is a backend without latency: what remains is the cost of the cache.
type instant struct{}

func (instant) Load(context.Context, string) (string, error) { return "19.99", nil }

func openRedis(b *testing.B, workers int) *redisstore.Redis {
	b.Helper()
	redisstore.DiscardClientLog()
	r, err := redisstore.OpenAt(b.Context(), redistest.Start(b).Addr(), redisstore.Options{Workers: workers, Name: "cachelab-bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	return r
}

func fixed(store cache.Store, load cache.Loader) *cache.Fixed {
	return &cache.Fixed{
		Aside:       cache.Aside{Store: store, Backend: load, Probe: cache.NoProbe{}, TTL: 500 * time.Millisecond},
		Lock:        cache.FillLock{TTL: 10 * time.Second, NewToken: cache.RandomToken},
		WaitTimeout: 11 * time.Second,
	}
}

// BenchmarkGet is one Get on a real Redis: a hit is one command, a miss five.
func BenchmarkGet(b *testing.B) {
	b.Run("hit", func(b *testing.B) {
		strategy := fixed(openRedis(b, 1), instant{})
		strategy.TTL = time.Hour
		if _, err := strategy.Get(b.Context(), "key"); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if r, err := strategy.Get(b.Context(), "key"); err != nil || r.Outcome != cache.Hit {
				b.Fatal(r.Outcome, err)
			}
		}
	})
	b.Run("miss", func(b *testing.B) {
		strategy := fixed(openRedis(b, 1), instant{})
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			if r, err := strategy.Get(b.Context(), fmt.Sprint("key", n)); err != nil || r.Outcome != cache.Filled {
				b.Fatal(r.Outcome, err)
			}
		}
	})
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// deaf takes what is exported, and looks at none of it: what remains is the cost of sending.
func deaf(b *testing.B) (url string) {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(server.Close)
	return server.URL
}

// BenchmarkTelemetry is a Get that hits, on a real Redis: bare, with redisotel alone, and with everything, which is
// the worker's and the command's span, the attributes, and the metrics of a worker. The processor time is the export's too.
func BenchmarkTelemetry(b *testing.B) {
	labels := telemetry.Labels{Mode: "fixed", Scenario: "rounds"}
	var flush func() // exports what there is
	hit := func(b *testing.B, instrument func(*redis.Client) error, wrap func(cache.Store) (cache.Store, herd.Observer)) {
		redisstore.DiscardClientLog()
		r, err := redisstore.OpenAt(b.Context(), redistest.Start(b).Addr(), redisstore.Options{Workers: 1, Name: "cachelab-bench", Instrument: instrument})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		store, observer := wrap(r)
		strategy := fixed(store, instant{})
		strategy.TTL = time.Hour
		ctx, end := observer.Round(b.Context(), herd.Round{Number: 1, Workers: 1})
		defer end(herd.RoundSummary{})
		if _, err := strategy.Get(ctx, "key"); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		began := cpu(b)
		for b.Loop() {
			inner, end := observer.Worker(ctx, herd.Worker{Round: 1, Number: 1})
			result, err := strategy.Get(inner, "key")
			if err != nil {
				b.Fatal(err)
			}
			end(&herd.Response{Result: *result})
		}
		if flush != nil {
			flush()
		}
		b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
	}
	start := func(b *testing.B) *telemetry.Telemetry {
		receiver := deaf(b)
		t, err := telemetry.Start(b.Context(), telemetry.Options{Switch: telemetry.On, Run: "bench", Lookup: func(name string) (string, bool) {
			return receiver, name == "OTEL_EXPORTER_OTLP_ENDPOINT"
		}})
		if err != nil {
			b.Fatal(err)
		}
		flush = func() { _ = t.Shutdown(context.Background()) }
		return t
	}
	bare := func(s cache.Store) (cache.Store, herd.Observer) { return s, herd.NoObserver{} }
	b.Run("bare", func(b *testing.B) { hit(b, nil, bare) })
	b.Run("redisotel", func(b *testing.B) {
		t := start(b)
		hit(b, func(c *redis.Client) error {
			return redisotel.InstrumentTracing(c, redisotel.WithTracerProvider(t.TracerProvider))
		}, bare)
	})
	b.Run("everything", func(b *testing.B) {
		t := start(b)
		hit(b, func(c *redis.Client) error { return t.InstrumentRedis(c, labels, redisstore.CommandOf) }, func(s cache.Store) (cache.Store, herd.Observer) {
			bridge, err := observe.New(t, labels, "bench", herd.JudgeHerd, backend.New(backend.Config{}))
			if err != nil {
				b.Fatal(err)
			}
			return bridge.Store(s), bridge.Observer(herd.NoObserver{})
		})
	})
}

// answering answers each GET by itself: nothing is sent, and what remains is what goes around a command.
type answering struct{ redis.Hook }

func (answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(*redis.StringCmd).SetVal("19.99")
		return nil
	}
}

func (answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }

// BenchmarkSpan is what one span costs from its start until it has been sent, with what is counted beside it: that of a
// command, which is redisotel's, and that of a worker.
func BenchmarkSpan(b *testing.B) {
	labels := telemetry.Labels{Mode: "fixed", Scenario: "rounds"}
	measure := func(b *testing.B, once func(ctx context.Context, store cache.Store, observer herd.Observer)) {
		receiver := deaf(b)
		t, err := telemetry.Start(b.Context(), telemetry.Options{Switch: telemetry.On, Run: "bench", Lookup: func(name string) (string, bool) {
			return receiver, name == "OTEL_EXPORTER_OTLP_ENDPOINT"
		}})
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
		defer client.Close()
		if err := t.InstrumentRedis(client, labels, redisstore.CommandOf); err != nil {
			b.Fatal(err)
		}
		client.AddHook(answering{})
		bridge, err := observe.New(t, labels, "bench", herd.JudgeHerd, backend.New(backend.Config{}))
		if err != nil {
			b.Fatal(err)
		}
		observer := bridge.Observer(herd.NoObserver{})
		ctx, end := observer.Round(b.Context(), herd.Round{Number: 1, Workers: 1})
		ctx, end2 := observer.Worker(ctx, herd.Worker{Round: 1, Number: 1})
		store := bridge.Store(redisstore.NewStore(client))
		b.ReportAllocs()
		began := cpu(b)
		for b.Loop() {
			once(ctx, store, observer)
		}
		end2(&herd.Response{Result: cache.Result{Outcome: cache.Hit}})
		end(herd.RoundSummary{})
		_ = t.Shutdown(context.Background())
		b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
		if spans := t.Spans(); spans.Dropped > 0 {
			b.Fatalf("%+v", spans)
		}
	}
	b.Run("command", func(b *testing.B) {
		measure(b, func(ctx context.Context, store cache.Store, _ herd.Observer) {
			if _, found, err := store.Get(ctx, "key"); !found || err != nil {
				b.Fatal(found, err)
			}
		})
	})
	b.Run("worker", func(b *testing.B) {
		measure(b, func(ctx context.Context, _ cache.Store, observer herd.Observer) {
			_, end := observer.Worker(ctx, herd.Worker{Round: 1, Number: 1})
			end(&herd.Response{Result: cache.Result{Outcome: cache.Hit}})
		})
	})
}

// BenchmarkWait is one round of waiters on a fill of 250 ms: how late they see the value, and what it costs.
func BenchmarkWait(b *testing.B) {
	for _, workers := range []int{50, 500} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			redis := openRedis(b, workers)
			h := herd.Herd{
				Strategy: fixed(redis, backend.New(backend.Config{Latency: 250 * time.Millisecond, Jitter: 0.1})),
				Key:      "key",
				Workers:  workers,
				Rounds:   b.N,
				Keeper:   redis,
				Observer: herd.NoObserver{},
			}
			census := redis.TakeCensus(b.Context())
			l, err := h.Run(b.Context())
			if err != nil || l.BackendCalls != l.Expiries {
				b.Fatalf("%d backend calls, %d expiries, %v", l.BackendCalls, l.Expiries, err)
			}
			c, standing := redis.Count(b.Context(), census)
			if standing != redisstore.Exact {
				b.Fatal(standing)
			}
			b.ReportMetric(float64(l.WakeLag.P50.Microseconds())/1000, "wake-p50-ms")
			b.ReportMetric(float64(l.WakeLag.P99.Microseconds())/1000, "wake-p99-ms")
			// A release is one command, although Redis counts the GET and DEL in its script too.
			b.ReportMetric(float64(c.Get-c.Eval+c.Set+c.Eval)/float64(l.Requests), "commands/request")
			b.ReportMetric(0, "ns/op") // a round takes what the backend takes
		})
	}
}
