package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"cachelab/app/cli"
	"cachelab/app/facts"
)

// early and stale under their own traffic: the key is filled once, and after that no backend call is redundant, and nobody misses.
func TestModesWhosePromiseNeedsTrafficRunInIt(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		for _, mode := range []string{"early", "stale"} {
			out := run(t.Context(), t, nil, mode, "--for", "4s", "--ttl", "1s", "--backend-latency", "50ms", "--lock-ttl", "1s", "--telemetry", "off",
				"--records", "", "--redis", redis, "--json", "-")
			var r facts.Run
			if err := json.Unmarshal([]byte(out.stdout), &r); err != nil {
				t.Fatalf("%s: %v in %s%s", mode, err, out.stdout, out.stderr)
			}
			equal(t, "exit code", out.code, cli.ExitOK)
			equal(t, "mode", r.Mode, mode)
			equal(t, "expiries", r.Expiries, 1)
			equal(t, "redundant", r.Redundant, 0)
			equal(t, "most in flight", r.BackendPeak, 1)
			equal(t, "errors", r.Outcomes["error"], 0)
			equal(t, "acquired", r.Lock.Acquired, r.Lock.Rechecked+r.BackendCalls)
			equal(t, "released", r.Lock.Released, r.Lock.Acquired)
			equal(t, "not sent", r.NotSent, 0)
			if r.Requests < 1400 || r.Requests > 1800 || r.BackendCalls < 3 || r.BackendCalls > 12 {
				t.Errorf("%s: %d requests, %d backend calls", mode, r.Requests, r.BackendCalls)
			}
			if mode == "stale" && (r.Repeated != 0 || r.Overdue.Max == 0) {
				t.Errorf("stale: %d repeated, at most %v ms overdue", r.Repeated, r.Overdue.Max)
			}
			if mode == "early" && r.Overdue.Max > 50 { // the reply may be late
				t.Errorf("early: %v ms overdue", r.Overdue.Max)
			}
			if want := regexp.MustCompile(`verdict: ok, \d+ backend calls for \d+ requests, 0 redundant, `); !want.MatchString(out.stderr) {
				t.Errorf("no verdict in:\n%s", out.stderr)
			}
		}
	})
}

func TestFaultsOfTraffic(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"compare", "--modes", "fixed,early"}, cli.ExitUsage, `--modes "fixed,early": the promise of early needs traffic, not rounds: cachelab early`},
		{[]string{"stale", "--rounds", "3"}, cli.ExitUsage, "the promise of stale needs traffic, not rounds: give --rate and --for"},
		{[]string{"early", "--beta", "0"}, cli.ExitUsage, `--beta "0": want a number, more than 0 and at most 100`},
		{[]string{"early", "--rate", "fast"}, cli.ExitUsage, `--rate "fast": want a number of requests a second`},
		{[]string{"stale", "--grace", "5"}, cli.ExitUsage, `--grace "5": want a duration`},
		{[]string{"stale", "--grace", "2s", "--for", "100ms", "--redis", "embedded", "--telemetry", "off", "--records", ""}, cli.ExitOK,
			"warning: the grace time (2s) is shorter than the lock TTL (10s)"},
		{[]string{"stale", "--rate", "0.01", "--for", "100ms", "--redis", "embedded", "--telemetry", "off", "--records", ""}, cli.ExitFailed,
			"nobody asked before the end: give a longer --for, or a higher --rate"},
	} {
		out := run(t.Context(), t, nil, test.args...)
		if out.code != test.code || !strings.Contains(out.stdout+out.stderr, test.want) {
			t.Errorf("%q: exit code %d, not said: %s\nbut:\n%s%s", test.args, out.code, test.want, out.stdout, out.stderr)
		}
	}
}
