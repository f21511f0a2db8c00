package report_test

import (
	"testing"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/report"
)

func TestDrillsAreOneTableWithTheVerdictsBelow(t *testing.T) {
	got := printed(func(t *report.Terminal) {
		t.Drills([]facts.Run{
			{Drill: "slow-fill", BackendCalls: 8, Expiries: 2, BackendPeak: 4, Lock: facts.Lock{Lost: 7}, Duration: 5.94,
				Verdict: herd.Verdict{OK: true, Text: "as it should be"}},
			{Drill: "lost-redis", BackendCalls: 3, Expiries: 2, BackendPeak: 1, Outcomes: map[cache.Outcome]int{cache.Failed: 49}, Duration: 2.8,
				Verdict: herd.Verdict{Text: "worse than that"}},
		})
	})
	want := `
╭────────────┬───────┬──────────┬──────┬────────┬──────┬───────┬─────────╮
│ drill      │ calls │ expiries │ peak │ errors │ lost │  time │ verdict │
├────────────┼───────┼──────────┼──────┼────────┼──────┼───────┼─────────┤
│ slow-fill  │     8 │        2 │    4 │      0 │    7 │ 5.9 s │ ok      │
│ lost-redis │     3 │        2 │    1 │     49 │    0 │ 2.8 s │ not ok  │
╰────────────┴───────┴──────────┴──────┴────────┴──────┴───────┴─────────╯
slow-fill verdict: ok, as it should be
lost-redis verdict: not ok, worse than that
`
	if got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}
