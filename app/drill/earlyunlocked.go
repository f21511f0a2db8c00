package drill

import (
	"context"
	"fmt"
	"math"
	"sync"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func earlyUnlocked() Drill {
	return Drill{
		Name:  "early-unlocked",
		Mode:  "early",
		Short: "early without its lock, as in the paper (--early-lock=false): about e = 2.72 calls for each refresh",
		Long: `XFetch as it was published has no lock: each request decides for itself. Until the first refresh is there, others decide
likewise, the more the longer a fill takes: on average e^(1/beta) calls for one refresh, however many ask (rate x fill from 20 on).
With the lock it is one.`,
		Traffic: true,
		Settings: map[string]string{"workers": "20", "rate": "400", "for": "30s", "ttl": "700ms", "backend-latency": "50ms", "backend-jitter": "0",
			"backend-capacity": "0", "early-lock": "false", "quiet": "true"},
		Start: startEarlyUnlocked,
	}
}

// deviation is about the standard deviation of the calls of one refresh, as simulated at beta 1; their mean is e^(1/beta).
const deviation = 2.5

func startEarlyUnlocked(s Scene) Faults {
	var once sync.Once
	return Faults{
		Loader: func(next cache.Loader) cache.Loader {
			return faultyLoader(func(ctx context.Context, key string) (string, error) {
				once.Do(func() { s.Report(ctx, "no lock: whoever decides so calls the backend") })
				return next.Load(ctx, key)
			})
		},
		Judge: func(l herd.Ledger) herd.Verdict {
			calls, redundant := 0, 0
			for _, r := range l.ByRound {
				if r.Missed == 0 { // an absent key is a herd, at first and after a pause of the machine
					calls, redundant = calls+r.BackendCalls, redundant+r.Redundant
				}
			}
			refreshes, theory := calls-redundant, math.Exp(1/s.Beta)
			mean, off := float64(calls)/float64(max(1, refreshes)), 4*deviation/math.Sqrt(float64(max(1, refreshes)))
			return verdict(l, fmt.Sprintf("while the value was there, %d calls for %s: %.2f each, where theory says %.2f and one would do",
				calls, herd.Count(refreshes, "refresh"), mean, theory),
				expect(redundant > 0, "no call was redundant"),
				expect(refreshes >= 20, "that takes 20 refreshes"),
				expect(math.Abs(mean-theory) <= off, "that is not within %.2f of it, as chance has it", off),
				expect(l.Acquired+l.Held == 0, "there were %d lock attempts", l.Acquired+l.Held),
				expect(l.Outcomes[cache.Failed] == 0, "%d requests failed", l.Outcomes[cache.Failed]))
		},
	}
}
