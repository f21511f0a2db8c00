package drill_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/drill"
	"cachelab/app/herd"
)

// The process that dead-winner kills is not killed when the drill itself is: then its line ends, and with it its context.
func TestADoomedProcessTellsItsStepsAndLeavesWithItsCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ended := cachetest.NewStore(), make(chan error, 1)
		ctx, leave := context.WithCancelCause(t.Context())
		var told []string
		calling := make(chan struct{})
		faults := drill.Doomed(func(s drill.Step) {
			told = append(told, s.Command)
			if s.Command == "backend call" {
				close(calling)
			}
		})
		fixed := &cache.Fixed{
			Aside: cache.Aside{Store: faults.Store(store), Backend: faults.Loader(nil), Probe: cache.NoProbe{}, TTL: time.Second},
			Lock:  cache.FillLock{TTL: time.Hour, NewToken: func(context.Context) string { return "T" }}, WaitTimeout: time.Millisecond,
		}
		started := time.Now()
		go func() {
			_, err := fixed.Get(ctx, "key")
			ended <- err
		}()
		<-calling
		if want := []string{"GET", "SET NX PX", "GET", "backend call"}; !slices.Equal(told, want) {
			t.Errorf("it told %q, want %q", told, want)
		}
		equal(t, "lock in the backend call", store.Peek(cache.LockKey("key")), "T")
		gone := errors.New("the coordinator is gone")
		leave(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("it left with %v", err)
		}
		equal(t, "time until it left", time.Since(started), 0)
		equal(t, "lock afterwards", store.Peek(cache.LockKey("key")), "")
	})
}

func TestAProcessThatDidNotWinIsNotSaidToHave(t *testing.T) {
	for _, d := range drill.All() {
		if d.Name != "dead-winner" {
			continue
		}
		v := d.Start(drill.Scene{}).Judge(herd.Ledger{})
		equal(t, "ok", v.OK, false)
		if want := "0 backend calls / 0 expiries: no process won and was killed; nobody took over: "; !strings.HasPrefix(v.Text, want) {
			t.Errorf("verdict: got %q, want %q first", v.Text, want)
		}
	}
}
