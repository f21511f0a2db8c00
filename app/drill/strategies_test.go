package drill_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cachelab/app/redisstore"
)

// The late fills of a strategy that stores and releases in one command.
func checkLateFills(t *testing.T, d drilled) {
	t.Helper()
	equal(t, "late SETs", d.SetsLate, d.BackendCalls-d.Expiries)
	equal(t, "lost", d.Lock.Lost, d.BackendCalls)
	equal(t, "errors", d.Outcomes["error"], 0)
	equal(t, "told of late SETs", strings.Count(d.printed, "a value is there: SET refused"), d.SetsLate)
	d.checkCommands(t, redisstore.Exact, 0)
}

func TestLostMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "lost-message")
		equal(t, "backend calls", d.BackendCalls, 6)
		equal(t, "expiries", d.Expiries, 6)
		equal(t, "peak", d.BackendPeak, 1)
		equal(t, "filled", d.Outcomes["filled"], 6)
		equal(t, "waited", d.Outcomes["waited"]+d.Outcomes["hit"], 6*159)
		between(t, "wakes by message", d.Wakes.Message, 3, 3*7) // a flight that begins late has no use for one
		between(t, "wakes by look", d.Wakes.Look, 3, 3*7)
		equal(t, "messages lost", strings.Count(d.printed, "the message is lost"), 3)
		times := regexp.MustCompile(`: (\d+) times as long$`).FindStringSubmatch(d.Verdict.Text)
		if times == nil {
			t.Fatalf("verdict: %s", d.Verdict.Text)
		}
		n, _ := strconv.Atoi(times[1])
		between(t, "times as long without messages", n, 5, 100_000)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestSlowFillOfWoken(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "slow-fill-woken")
		equal(t, "expiries", d.Expiries, 3)
		between(t, "backend calls", d.BackendCalls, 3*2, 3*4) // a TTL of 300 ms ends three times in a fill of 1 s
		between(t, "peak", d.BackendPeak, 2, 4)
		checkLateFills(t, d)
	})
}

func TestSlowFillOfEarly(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "slow-fill-early")
		between(t, "expiries", d.Expiries, 3, 8)                               // a value lives for 1.5 s
		between(t, "backend calls", d.BackendCalls, 2*d.Expiries, 1+11000/200) // a lock lives for 200 ms
		between(t, "peak", d.BackendPeak, 2, 4)
		checkLateFills(t, d)
	})
}

func TestSlowFillOfStale(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "slow-fill-stale")
		between(t, "expiries", d.Expiries, 3, 4) // a value lives for 1.5 s, and as long again
		between(t, "backend calls", d.BackendCalls, 2*d.Expiries, 1+11000/200)
		between(t, "peak", d.BackendPeak, 2, 4)
		checkLateFills(t, d)
	})
}

func TestEarlyUnlocked(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, redis string) {
		d := do(t, redis, "early-unlocked", "--for", "20s")
		equal(t, "locks", d.Lock.Acquired+d.Lock.Held, 0)
		equal(t, "errors", d.Outcomes["error"], 0)
		equal(t, "filled", d.Outcomes["filled"], d.BackendCalls) // whoever calls is not spared the wait
		each := regexp.MustCompile(`while the value was there, (\d+) calls for (\d+) refreshes: (\d\.\d+) each, where theory says 2\.72`).FindStringSubmatch(d.Verdict.Text)
		if each == nil {
			t.Fatalf("verdict: %s", d.Verdict.Text)
		}
		calls, _ := strconv.Atoi(each[1])
		refreshes, _ := strconv.Atoi(each[2])
		between(t, "refreshes", refreshes, 20, 40)
		between(t, "redundant", d.Redundant, calls-refreshes, d.BackendCalls)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestFlush(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "flush")
		equal(t, "expiries", d.Expiries, 2)
		equal(t, "filled", d.Outcomes["filled"], 2)
		between(t, "refreshes", d.BackendCalls-d.Expiries, 1, 2)
		equal(t, "redundant", d.Redundant, 0)
		equal(t, "repeated", d.Repeated, 0)
		equal(t, "errors", d.Outcomes["error"], 0)
		equal(t, "emptied", strings.Count(d.printed, "FLUSHALL: Redis is empty"), 1)
		if redis != "embedded" && d.Redis == redis {
			t.Error("the drill emptied a server that is not its own")
		}
		d.checkCommands(t, redisstore.Exact, 0)
	})
}
