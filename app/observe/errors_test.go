package observe_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// unreliable is a store whose polls fail.
type unreliable struct{ *cachetest.Store }

func (u unreliable) Get(ctx context.Context, key string) (string, bool, error) {
	if cache.ReadOf(ctx) == cache.Poll {
		return "", false, fmt.Errorf("read: %w", io.EOF)
	}
	return u.Store.Get(ctx, key)
}

// A stretch that ends in an error says so, and of which kind it is; one that ends well does not. The store's own spans are the
// Redis client's.
func TestSpansThatFailSayOfWhichKindTheErrorIs(t *testing.T) {
	dead, err := backend.ParseFailures("all")
	if err != nil {
		t.Fatal(err)
	}
	const worker, miss, wait, call = telemetry.SpanWorker, telemetry.SpanMiss, telemetry.SpanWait, telemetry.SpanBackendCall
	for name, test := range map[string]struct {
		backend backend.Config
		held    bool // the fill lock, by somebody who never fills
		leaves  time.Duration
		polls   bool // fail
		broken  bool
		want    map[string]string // error.type by span; "" for status Unset
	}{
		"a fill":                 {want: map[string]string{worker: "", miss: "", call: ""}},
		"a backend that fails":   {backend: backend.Config{Failures: dead}, want: map[string]string{worker: "backend", miss: "backend", call: "backend"}},
		"the same, without lock": {backend: backend.Config{Failures: dead}, broken: true, want: map[string]string{worker: "backend", miss: "backend", call: "backend"}},
		"nobody fills":           {held: true, want: map[string]string{worker: "wait_timeout", miss: "wait_timeout", wait: "wait_timeout"}},
		"a caller that leaves":   {held: true, leaves: time.Second, want: map[string]string{worker: "context", miss: "context", wait: "context"}},
		"a caller that leaves the backend": {backend: backend.Config{Latency: time.Minute}, leaves: time.Second,
			want: map[string]string{worker: "context", miss: "context", call: "context"}},
		"a connection that breaks": {held: true, polls: true, want: map[string]string{worker: "connection", miss: "connection", wait: "connection"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, test.backend)
				memory := cachetest.NewStore()
				if test.held {
					if _, err := memory.Lock(t.Context(), cache.LockKey("key"), "another", time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				aside := w.aside(memory)
				if test.polls {
					aside = w.aside(unreliable{memory})
				}
				var strategy cache.Strategy = w.fixed(aside)
				if test.broken {
					strategy = &cache.Broken{Aside: aside}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if test.leaves > 0 {
					time.AfterFunc(test.leaves, leave)
				}
				ctx, end := w.Observer(herd.NoObserver{}).Worker(ctx, herd.Worker{Number: 1, Round: 1})
				result, err := strategy.Get(ctx, "key")
				end(&herd.Response{Result: *result, Err: err})

				got := map[string]string{}
				for _, s := range w.spans.Ended() {
					got[s.Name()] = errorType(t, s)
					if want := trace.SpanKindClient; s.Name() == call && s.SpanKind() != want {
						t.Errorf("the kind of %s is %v, want %v", call, s.SpanKind(), want)
					}
				}
				if !maps.Equal(got, test.want) {
					t.Errorf("errors of spans: %q, want %q", got, test.want)
				}
			})
		})
	}
}

func errorType(t *testing.T, s sdktrace.ReadOnlySpan) (kind string) {
	t.Helper()
	for _, a := range s.Attributes() {
		if a.Key == "error.type" {
			kind = a.Value.AsString()
		}
	}
	if failed := s.Status().Code == codes.Error; failed != (kind != "") {
		t.Errorf("%s has the status %v and error.type %q", s.Name(), s.Status(), kind)
	}
	return kind
}
