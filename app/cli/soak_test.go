//go:build soak

package cli_test

import (
	"testing"

	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
)

// The long runs, on a real Redis: "make soak".

// TestSoak1000Rounds has a TTL of four times the longest pause (50 ms): every waiter sees the value before it
// expires, so there are exactly as many expiry cycles as rounds.
func TestSoak1000Rounds(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", redistest.Start(t).URL(), "--workers", "100", "--rounds", "1000",
		"--ttl", "200ms", "--backend-latency", "30ms", "--quiet", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	checkFixed(t, r, 1000)
	t.Logf("1,000 rounds x 100 workers: %s", r.Verdict.Text)
}

func TestSoak10000Workers(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", redistest.Start(t).URL(), "--workers", "10000", "--rounds", "3",
		"--quiet", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	checkFixed(t, r, 3)
	t.Logf("3 rounds x 10,000 workers: %s, latency p99 %.0f ms", r.Verdict.Text, r.Latency.P99)
}

// TestSoak100000Workers is the bound of --workers. The TTL is longer than the herd takes to pass, so there is one cycle.
func TestSoak100000Workers(t *testing.T) {
	for _, redis := range []string{"embedded", redistest.Start(t).URL()} {
		out := run(t.Context(), t, nil, "fixed", "--redis", redis, "--workers", "100000", "--rounds", "1", "--ttl", "2m", "--quiet", "--json", "-")
		equal(t, "exit code", out.code, cli.ExitOK)
		r := decode(t, out.stdout)
		checkFixed(t, r, 1)
		t.Logf("100,000 workers: %s, latency p99 %.1f s", r.Verdict.Text, r.Latency.P99/1000)
	}
}

func TestSoakFixedTenTimesInARow(t *testing.T) {
	for _, redis := range []string{"embedded", redistest.Start(t).URL()} {
		for range 10 {
			out := run(t.Context(), t, nil, "fixed", "--redis", redis, "--ttl", "500ms", "--quiet", "--json", "-")
			equal(t, "exit code", out.code, cli.ExitOK)
			checkFixed(t, decode(t, out.stdout), 5)
		}
	}
}

func TestSoakSixtyReadersThatLeave(t *testing.T) { leaveEarly(t, 60) }
