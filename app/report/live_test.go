package report_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/report"
)

func TestLiveTellsOfCyclesAndPhases(t *testing.T) {
	var screen strings.Builder
	terminal := report.PlainTerminal(&screen)
	view := terminal.Live(20, true)
	observer := view.Observe("broken", herd.NoObserver{})
	end := view.Phase("broken", 30*time.Second)
	round := func(number int, c cache.Counts, outcomes map[cache.Outcome]int) {
		_, end := observer.Round(context.Background(), herd.Round{Number: number, Workers: 20})
		requests := 0
		for _, n := range outcomes {
			requests += n
		}
		end(herd.RoundSummary{Round: herd.Round{Number: number}, Sum: herd.Sum{Requests: requests, Counts: c, Expiries: c.SetsAbsent, Outcomes: outcomes}, Elapsed: 3250 * time.Millisecond})
	}
	view.Tell(events.Event{Worker: herd.Worker{Round: 1, Number: 7}, Kind: events.Call})
	round(1, cache.Counts{Misses: 16, BackendCalls: 16, SetsAbsent: 1}, map[cache.Outcome]int{cache.Hit: 184, cache.Filled: 15, cache.Failed: 1})
	round(2, cache.Counts{Hits: 50}, map[cache.Outcome]int{cache.Hit: 50}) // nobody missed: nothing to tell
	round(3, cache.Counts{}, map[cache.Outcome]int{cache.Failed: 3})       // Redis is away
	end(herd.Phase{Sum: herd.Sum{Requests: 253, Counts: cache.Counts{BackendCalls: 16}, Expiries: 1}, Elapsed: 30 * time.Second})
	view.Close()
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	want := `r1 w07 BACKEND CALL
broken 1: 200 requests, 16 backend calls, 1 expiry, 3.25 s, 1 error
broken 3: 3 requests, 0 backend calls, 0 expiries, 3.25 s, 3 errors
phase 1, broken: 30.00 s, 253 requests, 16 backend calls / 1 expiry = 16.0
`
	if screen.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", &screen, want)
	}
}

func TestCountsOfPhasesAddUpAndStandAsBadlyAsTheWorst(t *testing.T) {
	add := func(standings ...redisstore.Standing) facts.RedisCommands {
		var sum facts.RedisCommands
		for _, s := range standings {
			one := facts.RedisCommands{}
			one.Get, one.Set, one.Eval, one.Del = 4, 3, 2, 1
			sum.Add(one.Commands, s)
		}
		return sum
	}
	for _, test := range []struct {
		standings []redisstore.Standing
		get, del  int
		want      redisstore.Standing
	}{
		{[]redisstore.Standing{"exact", "exact", "exact"}, 12, 3, "exact"},
		{[]redisstore.Standing{"exact", "shared", "exact"}, 12, 3, "shared"},
		{[]redisstore.Standing{"exact", "not available", "exact"}, 0, 0, "not available"},
		{[]redisstore.Standing{"not available", "shared"}, 0, 0, "not available"},
	} {
		got := add(test.standings...)
		if got.Get != test.get || got.Del != test.del || got.Standing != test.want {
			t.Errorf("%v: got %+v", test.standings, got)
		}
	}
}

func TestTheDashboardsAddressHasTheRunAndItsTime(t *testing.T) {
	links := facts.Links{Grafana: "http://grafana.example/base/"}
	from := time.UnixMilli(1_700_000_010_000)
	got := links.Dashboard("a run&more", from, from.Add(3*time.Second))
	want := "http://grafana.example/base/d/thundering-herd?from=1700000005000&to=1700000018000&var-run=a+run%26more"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Phases are as long as they are, so the totals of two modes cannot be held against each other.
func TestTheModesOfLiveAreComparedByRatesAndNotByTotals(t *testing.T) {
	broken := facts.Run{ID: "live-1", Scenario: modes.Live, Mode: "broken", Requests: 4000, BackendCalls: 300, Expiries: 20, CallsPerExpiry: 15, BackendPeak: 17,
		Gets: facts.Gets{Hit: 3700, Miss: 300}, Latency: facts.Milliseconds{P50: 1, P99: 600}, Duration: 100,
		Outcomes: map[cache.Outcome]int{cache.Hit: 3700, cache.Filled: 300}}
	fixed := facts.Run{ID: "live-1", Scenario: modes.Live, Mode: "fixed", Requests: 2500, BackendCalls: 10, Expiries: 10, CallsPerExpiry: 1, BackendPeak: 1,
		Gets: facts.Gets{Hit: 2500, Miss: 1250}, Latency: facts.Milliseconds{P50: 1, P99: 300}, Duration: 50,
		Outcomes: map[cache.Outcome]int{cache.Hit: 2365, cache.Filled: 10, cache.Waited: 125}}
	want := [][]string{
		{"backend calls / s", "3.0", "0.2", "15.0 x"},
		{"calls per expiry", "15.0", "1.0", "15.0 x"},
		{"latency p50", "1.0 ms", "1.0 ms", "1.0 x"},
		{"latency p99", "600.0 ms", "300.0 ms", "2.0 x"},
		{"requests / s", "40.0", "50.0", "0.8 x"},
		{"GET / request", "1.0", "1.5", "0.7 x"},
		{"waited, % of requests", "0.0", "5.0", "-"},
	}
	if got := facts.Compare([]facts.Run{broken, fixed}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Of more than two, a ratio would have to say of which: the table is as wide as 80 columns allow without.
	for i, row := range facts.Compare([]facts.Run{broken, fixed, broken}) {
		if got, want := row, append(want[i][:3:3], want[i][1]); !reflect.DeepEqual(got, want) {
			t.Errorf("of three: got %q, want %q", got, want)
		}
	}
	text := printed(func(t *report.Terminal) { t.Compare(broken, fixed) })
	if !strings.Contains(text, "a herd slows its own accusers") {
		t.Errorf("not said that the loop is closed:\n%s", text)
	}
	open := broken
	open.Rate = 400
	if text := printed(func(t *report.Terminal) { t.Compare(open, fixed) }); strings.Contains(text, "closed loop") {
		t.Errorf("said of open traffic:\n%s", text)
	}
	broken.Scenario, fixed.Scenario = modes.Rounds, modes.Rounds
	if text := printed(func(t *report.Terminal) { t.Compare(broken, fixed) }); strings.Contains(text, "closed loop") {
		t.Errorf("said of a run with rounds:\n%s", text)
	}
}
