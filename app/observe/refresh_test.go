package observe_test

import (
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// A refresh in the background is a span of the round, not of the worker, which is over by then, and is linked to it. Its steps
// are counted once.
func TestARefreshInTheBackgroundIsASpanOfTheRoundLinkedToItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, backend.Config{Latency: 250 * time.Millisecond, TTL: time.Minute})
		aside := w.aside(cachetest.NewStore())
		aside.Probe = w.Probe(herd.Probe{})
		s := &cache.Stale{Fixed: *w.fixed(aside), Grace: time.Minute, Delta: func(string) (time.Duration, bool) { return time.Second, true }}
		if _, err := s.Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		l := w.run(t, s, 3)()
		if l.Requests != 3 || l.Works != 1 || l.Outcomes[cache.Hit] != 3 {
			t.Errorf("ledger %+v", l)
		}
		worker, refresh, root := map[string]bool{}, 0, ""
		for _, span := range w.spans.Ended() {
			switch id := span.SpanContext().SpanID().String(); span.Name() {
			case telemetry.RoundSpan("test"):
				root = id
			case telemetry.SpanWorker:
				worker[id] = true
			}
		}
		for _, span := range w.spans.Ended() {
			if span.Name() != telemetry.SpanRefresh {
				continue
			}
			refresh++
			if span.Parent().SpanID().String() != root {
				t.Error("its parent is not the round")
			}
			if links := span.Links(); len(links) != 1 || !worker[links[0].SpanContext.SpanID().String()] {
				t.Errorf("links %v, want the worker's", links)
			}
		}
		if refresh != 1 || w.Links() != 1 {
			t.Errorf("%d refreshes, %d links", refresh, w.Links())
		}
		got := w.counters(t)
		for name, want := range map[string]int64{"refreshes filled": 1, "backend.calls": 2, "lock.attempts acquired": 2, "lock.releases released": 1,
			"requests hit": 3, "gets hit": 4, "expiries": 1, "lock.rechecks": 0} {
			if got[name] != want {
				t.Errorf("%s is %d, want %d", name, got[name], want)
			}
		}
	})
}
