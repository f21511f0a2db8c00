package modes

import (
	"math/rand/v2"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func early() Mode {
	return Mode{
		Name:  "early",
		Short: "whoever asks may refresh the value before it expires, the likelier the nearer",
		Long: `XFetch (Vattani, Chiericetti, Lowenstein 2015): GET with PTTL; refresh when -beta x delta x ln(random) is at least the time
left, where delta is how long the fill of that value took. The refresh is made under the fill lock; who does not get it serves the
value that it has. Under enough traffic nobody misses, and there are more calls than one for each TTL. Its promise needs traffic:
400 requests a second for 20 s, each due at its own time.`,
		See:     "single backend calls before each expiry, and a key that never expires",
		Good:    "hot keys whose fill takes long, under steady traffic: nobody waits for the expiry, and nothing runs in the background",
		Costs:   "at 400 requests a second about 1.5 calls for each TTL, and who refreshes waits for its own fill",
		Color:   "#E69F00",
		Locks:   true,
		OneSlot: true,
		Traffic: true,
		New: func(p Parts) cache.Strategy {
			return &cache.Early{Fixed: cache.Fixed{Aside: p.Aside, Lock: p.Lock, WaitTimeout: p.WaitTimeout},
				Beta: p.Beta, Locked: p.EarlyLock, Delta: p.Delta, Random: rand.Float64}
		},
		Judge:  herd.JudgeEarly,
		Except: map[string]string{"an error is shared": "the next waiter of a cold key tries again"},
	}
}

func stale() Mode {
	return Mode{
		Name:  "stale",
		Short: "past the TTL one refreshes in the background, all are served the old value",
		Long: `The value is kept for its TTL and a grace time. GET with PTTL; past the TTL whoever gets the fill lock refreshes the value in
the background, and all, that request too, are served the old one. Nobody waits after the first fill; values are older than their
TTL by as much as a fill takes. Its promise needs traffic: 400 requests a second for 20 s, each due at its own time.`,
		See:     "a single backend call at each TTL, and nobody waits for it; values a little overdue",
		Good:    "hot keys that must answer at once, where a value that is a fill older than its TTL does no harm",
		Costs:   "old values: by as much as a fill takes, and by the grace time while the backend fails; work that outlives its request",
		Color:   "#56B4E9",
		Locks:   true,
		OneSlot: true,
		Traffic: true,
		Grace:   true,
		New: func(p Parts) cache.Strategy {
			return &cache.Stale{Fixed: cache.Fixed{Aside: p.Aside, Lock: p.Lock, WaitTimeout: p.WaitTimeout}, Grace: p.Grace, Delta: p.Delta}
		},
		Judge:  herd.JudgeStale,
		Except: map[string]string{"an error is shared": "the next waiter of a cold key tries again"},
	}
}
