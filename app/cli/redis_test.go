package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// restricted starts a server whose only user may do all but what is left out.
func restricted(t *testing.T, without string) *redistest.Server {
	return redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", without)
}

func TestARedisThatRefusesEndsTheRunBeforeItBegins(t *testing.T) {
	t.Parallel()
	noEval, full := restricted(t, "-eval"), redistest.Start(t, "--maxmemory", "1")
	for _, test := range []struct {
		args []string
		url  string
		want string
	}{
		{[]string{"fixed"}, noEval.URL(), "has no permissions to run the 'eval' command; grant it"},
		{[]string{"compare"}, noEval.URL(), "has no permissions to run the 'eval' command; grant it"},
		{[]string{"live", "--for", "1s"}, noEval.URL(), "has no permissions to run the 'eval' command; grant it"},
		{[]string{"drill", "dead-winner"}, noEval.URL(), "has no permissions to run the 'eval' command; grant it"},
		{[]string{"broken"}, full.URL(), "OOM command not allowed when used memory > 'maxmemory'.; the server's memory is full"},
	} {
		started := time.Now()
		out := run(t.Context(), t, nil, append(test.args, "--redis", test.url)...)
		equal(t, "exit code", out.code, cli.ExitFailed)
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("%q took %v, want at most 3 s", test.args, took)
		}
		if strings.Count(out.stderr, "\n") != 1 || !strings.Contains(out.stderr, test.want) || out.stdout != "" {
			t.Errorf("%q printed:\n%s%s", test.args, out.stdout, out.stderr)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: noEval.Addr()})
	defer client.Close()
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// Names and statistics are for the count alone.
func TestARunGoesOnWithoutWhatOnlyItsCountNeeds(t *testing.T) {
	t.Parallel()
	for _, without := range []string{"-client", "-client|setname", "-client|list", "-info"} {
		server := restricted(t, without)
		out := run(t.Context(), t, nil, "fixed", "--redis", server.URL(), "--rounds", "1", "--backend-latency", "50ms", "--json", "-", "--quiet")
		equal(t, without+": exit code", out.code, cli.ExitOK)
		r := decode(t, out.stdout)
		equal(t, without+": backend calls", r.BackendCalls, 1)
		equal(t, without+": standing", r.RedisCommands.Standing, redisstore.NotAvailable)
	}
}

// What a preflight sends is counted nowhere.
func TestAPreflightIsNotCounted(t *testing.T) {
	t.Parallel()
	out := run(t.Context(), t, nil, "broken", "--redis", redistest.Start(t).URL(), "--workers", "2", "--rounds", "1", "--backend-latency", "50ms", "--json", "-", "--quiet")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	equal(t, "Redis's GETs and SETs", r.RedisCommands.Commands, redisstore.Commands{Get: 2, Set: 2})
	equal(t, "standing", r.RedisCommands.Standing, redisstore.Exact)
}

func TestKeysThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":               `--key "": want a name`,
		"a:filling":      `--key "a:filling": ...:filling is what a fill lock is called`,
		"product:42:xyz": "",
	} {
		out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--key", key, "--workers", "2", "--rounds", "1", "--backend-latency", "10ms")
		code := cli.ExitUsage
		if want == "" {
			code = cli.ExitOK
		}
		equal(t, key+": exit code", out.code, code)
		if !strings.Contains(out.stderr, want) {
			t.Errorf("%q printed:\n%s", key, out.stderr)
		}
	}
}
