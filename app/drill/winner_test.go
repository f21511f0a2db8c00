package drill_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/drill"
	"cachelab/app/herd"
)

// The process that dead-winner kills is not killed when the drill itself is: then its pipe ends.
func TestTheWinnersProcessLeavesWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore()
		in, parent := io.Pipe()
		steps, out := io.Pipe()
		started, ended := time.Now(), make(chan error, 1)
		go func() {
			ended <- drill.Winner(t.Context(), store, "key", time.Hour, 1, func() int { return 2 }, in, out)
		}()

		told := json.NewDecoder(steps)
		connections := 0
		for step := (drill.Step{}); step.Command != "backend call"; connections = step.Connections {
			if err := told.Decode(&step); err != nil {
				t.Fatal(err)
			}
			if step.Command == "GET" && !step.Recheck {
				if _, err := fmt.Fprintln(parent, "T"); err != nil {
					t.Fatal(err)
				}
			}
		}
		equal(t, "connections that it told", connections, 2)
		equal(t, "lock in the backend call", store.Peek(cache.LockKey("key")), "T")
		if err := parent.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("no error")
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
