package cli_test

import (
	"regexp"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

var (
	firstRoundIsOver = regexp.MustCompile(`(?m)^round 1/4: .*$`)
	secondHerdWaits  = regexp.MustCompile(`(?s)(r2 w\d+ (WAIT|BACKEND CALL).*){50}`)
)

// clean says whether a round of four was as it should be.
func clean(printed, round string) bool {
	return regexp.MustCompile(`(?m)^round ` + round + `/4: 50 workers, 1 backend call, 1 expiry, \S+ s$`).MatchString(printed)
}

// The sentinels promote a replica; the run goes on with it, and so do its subscriptions.
func TestASentinelsMasterThatDiesBetweenRoundsIsFollowed(t *testing.T) {
	for _, mode := range []string{"fixed", "woken"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := redistest.StartWatched(t, 2, 3)
			out := runUntil(t.Context(), t, nil, firstRoundIsOver, w.Master.Stop, mode, "--redis", w.URL(), "--rounds", "4", "--ttl", "500ms", "--json", "-")
			r := decode(t, out.stdout)
			equal(t, "exit code", out.code, cli.ExitOK)
			equal(t, "verdict", r.Verdict.Text, "4 backend calls / 4 expiries = 1.0: one backend call per expiry cycle")
			equal(t, "errors", r.Outcomes["error"], 0)
			equal(t, "Redis counted", r.RedisCommands.Standing, redisstore.NotAvailable) // the old master's count is gone with it
			if t.Failed() {
				t.Log(out.stderr)
			}
		})
	}
}

func TestASentinelsMasterThatDiesInARoundCostsThatRound(t *testing.T) {
	for _, mode := range []string{"fixed", "woken"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := redistest.StartWatched(t, 2, 3)
			out := runUntil(t.Context(), t, nil, secondHerdWaits, w.Master.Stop, mode, "--redis", w.URL(), "--rounds", "4", "--ttl", "500ms",
				"--backend-latency", "2s", "--backend-jitter", "0", "--json", "-")
			r := decode(t, out.stdout)
			equal(t, "exit code", out.code, cli.ExitVerdict)
			equal(t, "rounds", r.Rounds, 4)
			if r.BackendCalls < 4 || r.BackendCalls > 5 { // a waiter that lived to see the new master may have taken over
				t.Errorf("%d backend calls, want 4 or 5", r.BackendCalls)
			}
			for _, round := range []string{"1", "3", "4"} {
				if !clean(out.stderr, round) {
					t.Errorf("round %s was not clean in:\n%s", round, regexp.MustCompile(`(?m)^(round|verdict).*$`).FindAllString(out.stderr, -1))
				}
			}
		})
	}
}

// A cluster without replicas has nobody for the slots of a node that is gone. When the node is back, so is the run.
func TestAClustersNodeThatGoesAwayAndComesBack(t *testing.T) {
	for _, test := range []struct {
		mode, name string
		when       *regexp.Regexp
		code       int
	}{
		{"fixed", "between rounds", firstRoundIsOver, cli.ExitOK}, {"fixed", "in a round", secondHerdWaits, cli.ExitVerdict},
		{"woken", "between rounds", firstRoundIsOver, cli.ExitOK}, {"woken", "in a round", secondHerdWaits, cli.ExitVerdict},
	} {
		t.Run(test.mode+" "+test.name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, "--cluster-node-timeout", "1000")
			owner, err := cluster.Owner(t.Context(), "product:42:price")
			if err != nil {
				t.Fatal(err)
			}
			away := func() {
				if err := owner.Stop(); err != nil {
					t.Error(err)
				}
				time.Sleep(1500 * time.Millisecond) // longer than the others wait for it
				if err := owner.Start(t.Context()); err != nil {
					t.Error(err)
				}
			}
			out := runUntil(t.Context(), t, nil, test.when, away, test.mode, "--redis", "redis://"+cluster.Nodes[0].Addr(), "--rounds", "4", "--ttl", "500ms",
				"--backend-latency", "1s", "--backend-jitter", "0", "--json", "-")
			r := decode(t, out.stdout)
			equal(t, "exit code", out.code, test.code)
			equal(t, "rounds", r.Rounds, 4)
			equal(t, "backend calls", r.BackendCalls, 4)
			for _, round := range []string{"1", "3", "4"} {
				if !clean(out.stderr, round) {
					t.Errorf("round %s was not clean in:\n%s", round, regexp.MustCompile(`(?m)^(round|verdict).*$`).FindAllString(out.stderr, -1))
				}
			}
		})
	}
}

// One that stays away ends the run, soon, and is named.
func TestAClustersNodeThatStaysAwayEndsTheRun(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-node-timeout", "1000")
	owner, err := cluster.Owner(t.Context(), "product:42:price")
	if err != nil {
		t.Fatal(err)
	}
	var gone time.Time
	stop := func() {
		gone = time.Now()
		if err := owner.Stop(); err != nil {
			t.Error(err)
		}
	}
	out := runUntil(t.Context(), t, nil, firstRoundIsOver, stop, "fixed", "--redis", "redis://"+cluster.Nodes[0].Addr(), "--rounds", "4", "--ttl", "500ms", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if took := time.Since(gone); took > 10*time.Second {
		t.Errorf("the run ended %v after the node", took)
	}
	if want := regexp.MustCompile(`Redis stayed away for 5s: (CLUSTERDOWN|dial tcp ` + regexp.QuoteMeta(owner.Addr()) + `)`); !want.MatchString(out.stderr) {
		t.Errorf("want %s in:\n%s", want, out.stderr)
	}
}
