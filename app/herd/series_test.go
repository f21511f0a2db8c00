package herd_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
)

// herdOfThree is traffic on a TTL of 3 s: a herd of three on a cold key, hits, a herd of two, and a refresh in the background.
func herdOfThree() []herd.Response {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	response := func(due, latency, age time.Duration, c cache.Counts) herd.Response {
		r := herd.Response{At: start.Add(due + latency), Elapsed: latency}
		if age > 0 {
			r.Answered = r.At.Add(-age)
		}
		r.Counts = c
		return r
	}
	const ms = time.Millisecond
	refresh := response(6200*ms, 250*ms, 0, cache.Counts{BackendCalls: 1, SetsReplaced: 1})
	refresh.Work = herd.Refresh
	return []herd.Response{
		response(0, 260*ms, 10*ms, cache.Counts{Misses: 1, BackendCalls: 1, SetsAbsent: 1}),
		response(100*ms, 300*ms, 10*ms, cache.Counts{Misses: 1, BackendCalls: 1, SetsReplaced: 1}),
		response(259*ms, 500*ms, 10*ms, cache.Counts{Misses: 1, BackendCalls: 1, SetsReplaced: 1}), // due before the first fill was there
		response(1000*ms, 1*ms, 400*ms, cache.Counts{Hits: 1}),
		response(3900*ms, 250*ms, 10*ms, cache.Counts{Misses: 1, BackendCalls: 1, SetsAbsent: 1}),
		response(3950*ms, 350*ms, 10*ms, cache.Counts{Misses: 1, BackendCalls: 1, SetsReplaced: 1}),
		refresh,
		response(6260*ms, 2*ms, 2100*ms, cache.Counts{Hits: 1}), // 6 s after the first fill
	}
}

func seriesOf(responses []herd.Response) *herd.Series {
	s := &herd.Series{TTL: 3 * time.Second}
	for _, r := range responses {
		s.Add(r)
	}
	return s
}

// Two herds' calls and a refresh are 3 calls, in the 6 s that are two TTLs; the first herd is the price of a cold key.
func TestCallsPerTTLAreThoseFromTheFirstFillOnAndWithoutIt(t *testing.T) {
	responses := herdOfThree()
	for range 20 {
		rand.Shuffle(len(responses), func(i, j int) { responses[i], responses[j] = responses[j], responses[i] })
		split := rand.IntN(len(responses) + 1)
		s := seriesOf(responses[:split])
		s.Join(seriesOf(responses[split:]), 0)
		if got := s.CallsPerTTL(); got != 1.5 {
			t.Fatalf("calls per TTL = %v, want 3 / 2", got)
		}
		if got := s.Length(); got != 6260*time.Millisecond {
			t.Errorf("length %v, want 6.26s", got)
		}
	}
	if got := seriesOf(herdOfThree()[3:4]).CallsPerTTL(); got != 0 {
		t.Errorf("without a fill: %v calls per TTL, want 0", got)
	}
	if got := (&herd.Series{TTL: time.Second}).CallsPerTTL(); got != 0 {
		t.Errorf("of nothing: %v calls per TTL, want 0", got)
	}
}

func TestTheStepsOfASeriesAreWhatBeganInThem(t *testing.T) {
	const ms = time.Millisecond
	got := seriesOf(herdOfThree()).Steps(time.Second)
	want := []herd.Step{
		{At: 0, Calls: 3, Slowest: 500 * ms, Oldest: 10 * ms},
		{At: 1000 * ms, Slowest: 1 * ms, Oldest: 400 * ms},
		{At: 3000 * ms, Calls: 2, Slowest: 350 * ms, Oldest: 10 * ms},
		{At: 6000 * ms, Calls: 1, Slowest: 2 * ms, Oldest: 2100 * ms}, // the refresh's time is nobody's latency
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := len((&herd.Series{}).Steps(time.Second)); n != 0 {
		t.Errorf("%d steps of nothing", n)
	}
}
