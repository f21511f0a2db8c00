package backend_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/backend"
)

// What becomes of a call depends on the seed and its number, not on who else calls meanwhile.
func TestTheSeedFixesTheFateOfEachCall(t *testing.T) {
	const calls = 1000
	type fate struct {
		fails bool
		took  time.Duration
	}
	run := func(seed uint64, together bool) map[int]fate {
		fates := map[int]fate{}
		synctest.Test(t, func(t *testing.T) {
			failures, err := backend.ParseFailures("10%")
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			s := backend.New(backend.Config{Latency: time.Second, Jitter: 0.1, Failures: failures, Seed: seed,
				OnCall: func(ctx context.Context, c backend.Call) {
					mu.Lock()
					defer mu.Unlock()
					fates[c.Number] = fate{errors.Is(c.Err, backend.ErrUnavailable), time.Since(ctx.Value(startedKey{}).(time.Time))}
				}})
			var all sync.WaitGroup
			for range calls {
				call := func() { _, _ = s.Load(context.WithValue(t.Context(), startedKey{}, time.Now()), "key") }
				if together {
					all.Go(call)
				} else {
					call()
				}
			}
			all.Wait()
		})
		return fates
	}
	one, together, other := run(1, false), run(1, true), run(2, false)
	differ, failed, asOther, sum := 0, 0, 0, time.Duration(0)
	for n, f := range one {
		if together[n] != f {
			differ++
		}
		if other[n] == f {
			asOther++
		}
		if f.fails {
			failed++
		}
		sum += f.took
	}
	equal(t, "calls", len(one), calls)
	equal(t, "calls whose fate differs when all come together", differ, 0)
	equal(t, "calls with the same fate under another seed", asOther, 0)
	if failed < 70 || failed > 130 { // three standard deviations of 1000 x 10%
		t.Errorf("%d of %d failed, want about 100", failed, calls)
	}
	if mean := sum / calls; mean < 994*time.Millisecond || mean > 1006*time.Millisecond { // likewise
		t.Errorf("mean latency %v, want about 1 s", mean)
	}
}

type startedKey struct{}
