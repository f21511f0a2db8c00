package drill

import (
	"context"
	"fmt"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// The strategies that store and release in one command meet the slow fill otherwise than fixed does: a late SET is refused
// where a value is.

func slowFillEarly() Drill {
	return Drill{
		Name:  "slow-fill-early",
		Mode:  "early",
		Short: "slow-fill for early: refreshes overlap, and each late SET is refused until the key has expired",
		Long: `The lock (200 ms) expires in the middle of each refresh (600 ms), so another begins. What comes late is not stored
over a value that is there: another may have stored it meanwhile. So the value expires in spite of all the calls, and the next
that comes is stored. There is a value in each cycle, and the lock still bounds the calls.`,
		Traffic:  true,
		Settings: slowFillTraffic(),
		Start:    startLateFill,
	}
}

func slowFillStale() Drill {
	return Drill{
		Name:  "slow-fill-stale",
		Mode:  "stale",
		Short: "slow-fill for stale: refreshes overlap, and each late SET is refused until the grace time is over",
		Long: `The lock (200 ms) expires in the middle of each refresh (600 ms), so another begins. What comes late is not stored
over a value that is there: another may have stored it meanwhile. So all are served the old value to the end of its grace time, and
the next that comes is stored. There is a value in each cycle, and the lock still bounds the calls.`,
		Traffic:  true,
		Settings: slowFillTraffic(),
		Start:    startLateFill,
	}
}

func slowFillWoken() Drill {
	return Drill{
		Name:  "slow-fill-woken",
		Mode:  "woken",
		Short: "slow-fill for woken: flights take over when they look, and each late SET is refused",
		Long: `Eight instances, each with flights and a subscription of its own, stand for as many processes. The lock (300 ms) expires
in the middle of the fill (1 s), so the next flight that looks takes over. The first value is stored, those that come late are
refused. There is a value in each cycle, and the lock still bounds the calls.`,
		Settings: map[string]string{"workers": "80", "rounds": "3", "ttl": "2s", "lock-ttl": "300ms", "backend-latency": "1s",
			"backend-jitter": "0", "quiet": "true"},
		Start: func(s Scene) Faults {
			f := startLateFill(s)
			f.Strategy = instances
			return f
		},
	}
}

func slowFillTraffic() map[string]string {
	return map[string]string{"workers": "20", "rate": "100", "for": "10s", "ttl": "1500ms", "lock-ttl": "200ms", "backend-latency": "600ms",
		"backend-jitter": "0", "quiet": "true"}
}

// lateSets tells of SETs that are refused.
type lateSets struct {
	cache.Store
	scene Scene
}

func (l lateSets) StoreAndUnlock(ctx context.Context, key, value string, ttl time.Duration, lockKey, token string) (cache.Stored, error) {
	stored, err := l.Store.StoreAndUnlock(ctx, key, value, ttl, lockKey, token)
	if err == nil && !stored.Stored {
		l.scene.Report(ctx, "the fill took longer than the lock's TTL, and a value is there: SET refused")
	}
	return stored, err
}

func startLateFill(s Scene) Faults {
	return Faults{
		Store: func(next cache.Store) cache.Store { return lateSets{next, s} },
		Judge: func(l herd.Ledger) herd.Verdict {
			// The next lock is taken no sooner than after a TTL.
			limit := 1 + int(l.InRounds/s.LockTTL)
			return verdict(l, fmt.Sprintf("%d fills began beside another, %d late SETs were refused, and each of %s ended with a value",
				l.Redundant, l.SetsLate, herd.Count(l.Expiries, "cycle")),
				expect(s.LockTTL < s.Latency, "the lock's TTL of %v is longer than the fill of %v", s.LockTTL, s.Latency),
				expect(l.Expiries >= 2, "that takes two cycles"),
				expect(l.Redundant > 0 && l.BackendCalls <= limit, "%d fills began beside another, and of %d calls the lock allows %d", l.Redundant, l.BackendCalls, limit),
				expect(l.SetsLate > 0 && l.SetsLate == l.BackendCalls-l.Expiries, "%d SETs were refused and %d stored of %d", l.SetsLate, l.Expiries, l.BackendCalls),
				expect(l.Lost == l.BackendCalls, "%d locks were lost in %d fills", l.Lost, l.BackendCalls),
				expect(l.Outcomes[cache.Failed] == 0, "%d requests failed", l.Outcomes[cache.Failed]))
		},
	}
}
