package herd_test

import (
	"testing"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

func TestVerdictsOnRefreshesAheadOfTheExpiry(t *testing.T) {
	sum := func(redundant, repeated, expiries, lost int) herd.Ledger {
		return herd.Ledger{Workers: 20, Sum: herd.Sum{Requests: 8000, Expiries: expiries, Redundant: redundant, Repeated: repeated,
			Counts: cache.Counts{Misses: 90, BackendCalls: 10, SetsAbsent: expiries, Lost: lost, Acquired: 10, Released: 10 - lost}}}
	}
	plain := sum(6, 0, 1, 0)
	plain.Acquired, plain.Released = 0, 0
	const calls = "10 backend calls for 8000 requests, "
	for _, test := range []struct {
		name  string
		judge herd.Judge
		l     herd.Ledger
		want  herd.Verdict
	}{
		{"early", herd.JudgeEarly, sum(0, 0, 1, 0), herd.Verdict{OK: true, Invariant: true, Text: calls + "0 redundant, 0 repeated"}},
		{"stale", herd.JudgeStale, sum(0, 0, 1, 0), herd.Verdict{OK: true, Invariant: true, Text: calls + "0 redundant, 0 repeated"}},
		{"early, redundant", herd.JudgeEarly, sum(3, 0, 1, 0), herd.Verdict{Text: calls + "3 redundant, 0 repeated: the lock should have spared them"}},
		{"early, repeated", herd.JudgeEarly, sum(0, 2, 1, 0),
			herd.Verdict{OK: true, Invariant: true, Text: calls + "0 redundant, 2 repeated (by chance: the value was younger than half its TTL)"}},
		{"early, in its plain form", herd.JudgeEarly, plain,
			herd.Verdict{OK: true, Text: calls + "6 redundant: 2.5 calls for each refresh, without the lock"}},
		{"stale, repeated", herd.JudgeStale, sum(0, 2, 1, 0), herd.Verdict{Text: calls + "0 redundant, 2 repeated: the lock should have spared them"}},
		{"early, too late", herd.JudgeEarly, sum(0, 0, 3, 0),
			herd.Verdict{OK: true, Invariant: true, Text: calls + "0 redundant, 0 repeated; the key was absent 2 times more, as nobody refreshed in time"}},
		{"stale, flushed", herd.JudgeStale, sum(0, 0, 2, 0),
			herd.Verdict{Text: calls + "0 redundant, 0 repeated, but the key was absent once more: those who asked then waited"}},
		{"stale, lost", herd.JudgeStale, sum(0, 0, 1, 1),
			herd.Verdict{Invariant: true, Text: calls + "0 redundant, 0 repeated, and 1 fill lock was lost: the fill takes longer than the lock's TTL"}},
	} {
		if v := test.judge(test.l); v != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, v, test.want)
		}
	}
}
