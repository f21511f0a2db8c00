package redisstore

import (
	"testing"
	"time"
)

// Redis's idle is a difference of truncated seconds: 0.999 and 2.001 make 2 of 1.002. A visit in the count's last second
// must not be missed, whatever the clock was.
func TestAStrangerIsSeenThoughRedisSaysItWasIdleForLonger(t *testing.T) {
	began := time.Now()
	for _, test := range []struct {
		lasted time.Duration // between the two readings
		idle   time.Duration // as Redis says
		want   bool
	}{
		{1500 * time.Millisecond, 2 * time.Second, true}, // it was 1.002 s
		{0, time.Second, true},                           // it was a millisecond
		{0, 2 * time.Second, true},                       // and the server's clock was late
		{1500 * time.Millisecond, 3 * time.Second, true}, // likewise
		{1500 * time.Millisecond, 4 * time.Second, false},
		{0, 3 * time.Second, false},
		{time.Minute, time.Hour, false},
	} {
		since := Census{began: began, ended: began, strangers: map[string]time.Duration{"7": time.Hour}}
		now := Census{began: began.Add(test.lasted), ended: began.Add(test.lasted), strangers: map[string]time.Duration{"7": test.idle}}
		if got := visited(since, now); got != test.want {
			t.Errorf("a count of %v, a stranger idle for %v: visited %v, want %v", test.lasted, test.idle, got, test.want)
		}
	}
	// CLIENT LIST is the last of a reading's commands: what was idle since its first was idle in the count.
	since := Census{began: began, ended: began.Add(5 * time.Second)}
	now := Census{began: began.Add(6 * time.Second), ended: began.Add(11 * time.Second), strangers: map[string]time.Duration{"7": 10 * time.Second}}
	if !visited(since, now) {
		t.Error("a slow reading misses a stranger")
	}
}
