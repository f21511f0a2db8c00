package lab_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/report"
)

// small runs a mode with two workers, and returns what was printed.
func small(t *testing.T, c lab.Config, name string) (facts.Run, string, error) {
	t.Helper()
	mode, err := modes.All().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Workers, c.Backend.Latency = 2, 10*time.Millisecond
	var screen strings.Builder
	terminal := report.PlainTerminal(&screen)
	l, err := lab.Open(t.Context(), c, terminal)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run, err := l.Run(t.Context(), lab.Plan{Mode: mode})
	err = errors.Join(err, terminal.Close())
	return run, screen.String(), err
}

func auto(t *testing.T, url string) lab.Config {
	c := config(t, "auto")
	var err error
	if c.Redis, err = redisstore.AutoAt(url); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAutoLeavesARedisThatRefuses(t *testing.T) {
	loading := redistest.StartScript(t, func([]string) string { return redistest.Err("LOADING Redis is loading the dataset in memory") })
	full := redistest.Start(t, "--maxmemory", "1")
	noEval := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "-eval")
	for _, test := range []struct {
		url, mode, redis, why string
	}{
		{loading, "broken", "embedded", "LOADING Redis is loading the dataset in memory"},
		{full.URL(), "broken", "embedded", "OOM command not allowed"},
		{noEval.URL(), "fixed", "embedded", "NOPERM this user has no permissions to run the 'eval' command"},
		{noEval.URL(), "broken", noEval.URL(), ""}, // which sends none
	} {
		run, printed, err := small(t, auto(t, test.url), test.mode)
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
		}
		if !run.Verdict.OK || run.Redis != test.redis {
			t.Errorf("%s at %s: on %s, verdict %+v", test.mode, test.url, run.Redis, run.Verdict)
		}
		line, _, _ := strings.Cut(printed, "\n")
		if embedded := strings.HasPrefix(line, "redis: using the embedded one (tried "); embedded != (test.why != "") || !strings.Contains(line, test.why) {
			t.Errorf("the first line is %q, want the reason %q", line, test.why)
		}
	}
}

// Compare shall not find out after its first run that its second cannot be made, or is made elsewhere.
func TestWhatALaterRunNeedsIsTriedBeforeTheFirst(t *testing.T) {
	c := auto(t, redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "-eval").URL())
	c.Modes = modes.All()
	if run, _, err := small(t, c, "broken"); err != nil || run.Redis != "embedded" {
		t.Errorf("on %s, %v, want embedded", run.Redis, err)
	}
}

// What somebody else keeps at the key or at its lock stays, and Redis is not to blame.
func TestSomebodyElsesKeysStay(t *testing.T) {
	const key, lock = "product:42:price", "product:42:price:filling"
	for _, test := range []struct {
		name, at string
		put      func(redis.Cmdable) error
		want     string
	}{
		{"a list at the key", key, func(r redis.Cmdable) error { return r.RPush(t.Context(), key, "theirs").Err() }, "WRONGTYPE"},
		{"a text at the key", key, func(r redis.Cmdable) error { return r.Set(t.Context(), key, "theirs", 0).Err() }, `holds "theirs", which is not the lab's`},
		{"a list at the lock", lock, func(r redis.Cmdable) error { return r.RPush(t.Context(), lock, "theirs").Err() }, "WRONGTYPE"},
		{"a price at the lock", lock, func(r redis.Cmdable) error {
			return r.Set(t.Context(), lock, lock+" costs 19.99 EUR (answer 1 of abc, 250ms)", 0).Err()
		}, "which is no lock but a value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t)
			stranger := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer stranger.Close()
			if err := errors.Join(test.put(stranger), stranger.Expire(t.Context(), test.at, time.Hour).Err()); err != nil {
				t.Fatal(err)
			}
			before := stranger.Dump(t.Context(), test.at).Val()
			started := time.Now()
			_, _, err := small(t, auto(t, server.URL()), "fixed")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "choose another --key") {
				t.Errorf("got %v", err)
			}
			if after := stranger.Dump(t.Context(), test.at).Val(); after != before || before == "" {
				t.Errorf("%q is %q afterwards", before, after)
			}
			if took := time.Since(started); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// What an earlier run left is deleted, whatever its number.
func TestTheLabsOwnValueIsDeleted(t *testing.T) {
	server := redistest.Start(t)
	other := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer other.Close()
	if err := other.Set(t.Context(), "product:42:price", "product:42:price costs 19.99 EUR (answer 271 of abc, 250ms)", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if run, _, err := small(t, config(t, server.URL()), "fixed"); err != nil || run.BackendCalls != rounds {
		t.Errorf("%d backend calls, %v, want %d", run.BackendCalls, err, rounds)
	}
}

// Another client lets the key live longer: what is waited for is said, and the run goes on.
func TestAKeyThatOutlivesItsTTLIsToldOf(t *testing.T) {
	server := redistest.Start(t)
	other := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer other.Close()
	c := config(t, server.URL())
	c.TTL = 200 * time.Millisecond
	longer := make(chan error, 1)
	go func() {
		for {
			value, err := other.Get(t.Context(), c.Key).Result()
			if err == nil && !strings.Contains(value, "(answer 0 of ") { // not the preflight's
				longer <- other.PExpire(t.Context(), c.Key, 2*time.Second).Err()
				return
			}
			if err := cache.Sleep(t.Context(), time.Millisecond); err != nil {
				longer <- err
				return
			}
		}
	}()
	run, printed, err := small(t, c, "fixed")
	if err := errors.Join(err, <-longer); err != nil {
		t.Fatal(err)
	}
	if !run.Verdict.OK || run.Expiries != rounds {
		t.Errorf("%d expiries, verdict %+v", run.Expiries, run.Verdict)
	}
	if !strings.Contains(printed, `waiting for the expiry of "product:42:price": it lives for 1.`) || !strings.Contains(printed, "and the lab gave it no more than 200ms") {
		t.Errorf("printed:\n%s", printed)
	}
}
