package cli_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

func TestAfterAnOutageInARoundTheNextRoundsAreClean(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	away := func() {
		server.Stop()
		time.Sleep(2200 * time.Millisecond)
		server.Start()
	}
	out := runUntil(t.Context(), t, nil, regexp.MustCompile(`(?s)(r2 w\d+ (WAIT|BACKEND CALL).*){50}`), away, "fixed", "--redis", server.URL(),
		"--rounds", "4", "--ttl", "500ms", "--backend-latency", "2s", "--backend-jitter", "0", "--json", "-")
	r := decode(t, out.stdout)
	equal(t, "exit code", out.code, cli.ExitVerdict)
	equal(t, "rounds", r.Rounds, 4)
	equal(t, "backend calls", r.BackendCalls, 4)
	equal(t, "errors", r.Outcomes["error"], 49) // those of round 2
	for _, clean := range []string{"1", "3", "4"} {
		if !regexp.MustCompile(`(?m)^round ` + clean + `/4: 50 workers, 1 backend call, 1 expiry, \S+ s$`).MatchString(out.stderr) {
			t.Errorf("round %s was not clean in:\n%s", clean, regexp.MustCompile(`(?m)^round .*$`).FindAllString(out.stderr, -1))
		}
	}
}

// A server that stands still over the winner's SET: it executes it later, and nobody is told.
func TestALostReplyToSETCannotBeJudged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	standStill := func() {
		server.Pause()
		time.Sleep(1800 * time.Millisecond)
		server.Resume()
	}
	out := runUntil(t.Context(), t, nil, regexp.MustCompile(`(?s)(r2 w\d+ (WAIT|BACKEND CALL).*){50}`), standStill, "fixed", "--redis", server.URL(),
		"--rounds", "3", "--ttl", "500ms", "--backend-latency", "500ms", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitVerdict)
	r := decode(t, out.stdout)
	equal(t, "verdict", r.Verdict.Text, "3 backend calls / 2 expiries = 1.5: cannot be judged: 1 SET was not answered")
	equal(t, "unanswered", r.Unanswered, facts.Steps{Set: 1})
	equal(t, "errors", r.Outcomes["error"], 0)
	equal(t, "store errors that were not tolerated", r.StoreErrors-r.Tolerated, 1)
	equal(t, "Redis counted", r.RedisCommands.Standing, redisstore.Exact) // nobody else was there
	if r.Tolerated == 0 || !strings.Contains(out.stderr, ` first error      SET "product:42:price": `) {
		t.Errorf("%d store errors tolerated, and printed was:\n%s", r.Tolerated, out.stderr)
	}
}

func TestARefusedSETIsNamedWithItsCause(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fill := func() {
		if err := exchange(server.Addr(), "CONFIG SET maxmemory 1"); err != nil {
			t.Error(err)
		}
	}
	out := runUntil(t.Context(), t, nil, regexp.MustCompile(`(?s)(r2 w\d+ (WAIT|BACKEND CALL).*){50}`), fill, "fixed", "--redis", server.URL(),
		"--rounds", "2", "--ttl", "500ms", "--backend-latency", "500ms", "--wait-timeout", "1s", "--lock-ttl", "900ms", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitVerdict)
	r := decode(t, out.stdout)
	equal(t, "refused", r.Refused, facts.Steps{Set: 1})
	if want := `, and 1 SET was refused (SET "product:42:price": OOM command not allowed`; !strings.Contains(r.Verdict.Text, want) {
		t.Errorf("verdict: got %q, want %q in it", r.Verdict.Text, want)
	}
}

func TestBrokenOnADeadBackendIsNotOK(t *testing.T) {
	t.Parallel()
	out := run(t.Context(), t, nil, "broken", "--redis", "embedded", "--rounds", "1", "--backend-fail", "all", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitVerdict)
	equal(t, "verdict", decode(t, out.stdout).Verdict.Text,
		"50 backend calls / 0 expiries: no value was cached, so there was no cycle to see, and 50 of 50 requests failed")
}

func TestAnInterruptedDrillTellsNothingThatDidNotHappen(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := runUntil(ctx, t, nil, regexp.MustCompile(`r1 w\d+ BACKEND CALL`), cancel, "drill", "lost-redis", "--redis", "embedded",
		"--backend-latency", "2s", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitFailed)
	equal(t, "verdict", decode(t, out.stdout).Verdict.Text,
		"after 1 of 3 rounds: 1 backend call / 0 expiries: the drill did not run to its end")

	// In traffic, the request that is on its way is answered first.
	ctx, cancel = context.WithCancel(t.Context())
	out = runUntil(ctx, t, nil, regexp.MustCompile(`r1 w\d+ BACKEND CALL`), cancel, "drill", "flush", "--redis", "embedded", "--quiet=false",
		"--json", "-")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if want := "verdict: not ok, 1 backend call / 1 expiry = 1.0: the drill did not run to its end"; !strings.Contains(out.stderr, want) {
		t.Errorf("no %q in:\n%s", want, out.stderr)
	}
}
