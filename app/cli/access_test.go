package cli_test

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/backend"
	"cachelab/app/cli"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// file is one of a test's own, with this text.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Each wrong way in ends the program within 3 s, with one line that says what is wrong and what to do: with exit code 1 if
// it is the server that says so, with 2 if nothing needs to be dialled.
func TestEachWrongWayInIsNamed(t *testing.T) {
	t.Parallel()
	ours, theirs := redistest.NewAuthority(t), redistest.NewAuthority(t)
	cert, key := ours.Issue()
	strange, strangeKey := theirs.Issue()
	past, pastKey := ours.IssueUntil(time.Now().Add(-time.Hour), "127.0.0.1")
	other, otherKey := ours.Issue("redis.example")
	plain := redistest.Start(t)
	guarded := redistest.Start(t, "--requirepass", "s3cret", "--user", "alice", "on", ">s3cret", "~*", "+@all")
	secure := redistest.StartTLS(t, ours, "", "", "--tls-auth-clients", "no")
	strict := redistest.StartTLS(t, ours, "", "")
	strict12 := redistest.StartTLS(t, ours, "", "", "--tls-protocols", "TLSv1.2")
	old := redistest.StartTLS(t, ours, past, pastKey, "--tls-auth-clients", "no")
	elsewhere := redistest.StartTLS(t, ours, other, otherKey, "--tls-auth-clients", "no")
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	for _, test := range []struct {
		name string
		code int
		args []string // after --redis
		want []string
	}{
		{"nobody there", 1, []string{"redis://127.0.0.1:1"}, []string{"tried PING at redis://127.0.0.1:1: ", "connection refused; start it"}},
		{"no such host", 1, []string{"redis://no-such-host.invalid"}, []string{"no such host", "correct --redis"}},
		{"no such socket", 1, []string{"unix:///no/redis.sock"}, []string{"tried PING at unix:///no/redis.sock: ", "no such file or directory; "}},
		{"a socket that is none", 1, []string{"unix://" + cert}, []string{"connection refused; "}},
		{"silence", 1, []string{"redis://" + silent.Addr().String()}, []string{"no answer within 1"}},
		{"silence to TLS", 1, []string{"rediss://" + silent.Addr().String()}, []string{"no answer within 2"}},
		{"HTTP", 1, []string{"redis://" + web.Listener.Addr().String()}, []string{"answered HTTP/1.1 400 Bad Request; that is no Redis"}},
		{"no password", 1, []string{guarded.URL()}, []string{"NOAUTH", "; give user and password: ", "--redis-password-file FILE"}},
		{"wrong password", 1, []string{"redis://:wr0ng@" + guarded.Addr()}, []string{"WRONGPASS", "; give user and password: "}},
		{"wrong password of a user", 1, []string{"redis://alice:wr0ng@" + guarded.Addr()}, []string{"WRONGPASS", "; give user and password: "}},
		{"wrong password in a file", 1, []string{guarded.URL(), "--redis-password-file", file(t, "wr0ng\n")}, []string{"WRONGPASS", `--redis-password-file FILE (now "/`}},
		{"no such user", 1, []string{"redis://bob:wr0ng@" + guarded.Addr()}, []string{"WRONGPASS", "; give user and password: "}},
		{"no rights", 1, []string{redistest.Start(t, "--user", "default", "on", "nopass").URL()}, []string{"NOPERM", "to run the 'get' command; grant it (ACL SETUSER NAME +get)"}},
		{"no such database", 1, []string{plain.URL() + "/99"}, []string{"DB index is out of range; the server has no such database"}},
		{"plain text to a TLS port", 1, []string{"redis://" + secure}, []string{"the port speaks TLS; write rediss://"}},
		{"plain text to a TLS port that wants certificates", 1, []string{"redis://" + strict}, []string{"the port speaks TLS; write rediss://"}},
		{"TLS to a plain port", 1, []string{"rediss://" + plain.Addr(), "--redis-ca", ours.File}, []string{"the port speaks plain text; write redis://"}},
		{"unknown authority", 1, []string{"rediss://" + secure}, []string{"x509: certificate signed by unknown authority; give the certificate", "--redis-ca FILE, or append ?skip_verify=true"}},
		{"wrong authority", 1, []string{"rediss://" + secure, "--redis-ca", theirs.File}, []string{"x509: certificate signed by unknown authority", `--redis-ca FILE (now "` + theirs.File + `")`}},
		{"expired certificate", 1, []string{"rediss://" + old, "--redis-ca", ours.File}, []string{"x509: certificate has expired", "; renew the server's certificate"}},
		{"certificate of another host", 1, []string{"rediss://" + elsewhere, "--redis-ca", ours.File}, []string{"x509: ", "127.0.0.1", "; give the host that the certificate names", "--redis-sni NAME"}},
		{"certificate of another name", 1, []string{"rediss://" + elsewhere, "--redis-ca", ours.File, "--redis-sni", "r2.example"},
			[]string{"x509: certificate is valid for redis.example, not r2.example; ", `--redis-sni NAME (now "r2.example")`}},
		{"no client certificate", 1, []string{"rediss://" + strict, "--redis-ca", ours.File}, []string{"tls: certificate required; the server wants a client certificate: --redis-cert FILE and --redis-key FILE"}},
		{"no client certificate in TLS 1.2", 1, []string{"rediss://" + strict12, "--redis-ca", ours.File}, []string{"handshake failure; the server may want a client certificate"}},
		{"client certificate of a stranger", 1, []string{"rediss://" + strict, "--redis-ca", ours.File, "--redis-cert", strange, "--redis-key", strangeKey},
			[]string{"remote error: tls: ", "; the server does not accept the client certificate", `--redis-cert FILE (now "` + strange + `")`}},
		{"no file", 2, []string{"rediss://" + secure, "--redis-ca", "/no/ca.pem"}, []string{`--redis-ca "/no/ca.pem": cannot be read: no such file or directory`}},
		{"key of another certificate", 2, []string{"rediss://" + secure, "--redis-cert", cert, "--redis-key", strangeKey}, []string{`--redis-key "` + strangeKey + `": it is not the key of the certificate in --redis-cert "` + cert + `"`}},
		{"expired client certificate", 2, []string{"rediss://" + secure, "--redis-cert", past, "--redis-key", pastKey}, []string{`--redis-cert "` + past + `": the certificate expired on `}},
		{"certificates without TLS", 2, []string{plain.URL(), "--redis-cert", cert, "--redis-key", key}, []string{"are for TLS: write rediss:// in --redis"}},
		{"no such password file", 2, []string{guarded.URL(), "--redis-password-file", "/no/password"}, []string{`--redis-password-file "/no/password": cannot be read: no such file or directory`}},
		{"user without password", 2, []string{"redis://alice@" + guarded.Addr()}, []string{"--redis names a user without a password"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			refused(t, test.code, test.args, test.want)
		})
	}
}

// refused runs the program, which must end within 3 s, with a line that says all of want.
func refused(t *testing.T, code int, way, want []string) {
	t.Helper()
	started := time.Now()
	out := run(t.Context(), t, nil, append([]string{"fixed", "--redis"}, way...)...)
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("took %v, want at most 3 s", took)
	}
	equal(t, "exit code", out.code, code)
	line, more, _ := strings.Cut(out.stderr, "\n")
	if code == cli.ExitUsage {
		more = strings.TrimSuffix(more, "(see cachelab fixed --help)\n")
	}
	if out.stdout != "" || more != "" {
		t.Errorf("printed more than a line:\n%s%s", out.stdout, out.stderr)
	}
	for _, want := range want {
		if !strings.Contains(line, want) {
			t.Errorf("not said: %s\nbut: %s", want, line)
		}
	}
	for _, secret := range []string{"s3cret", "wr0ng"} {
		if strings.Contains(out.stderr, secret) {
			t.Errorf("a password is printed: %s", out.stderr)
		}
	}
	t.Log(line)
}

func TestEachWrongWayIntoAClusterOrASentinelIsNamed(t *testing.T) {
	t.Parallel()
	const key = "product:42:price"
	for name, test := range map[string]struct {
		url  func(t *testing.T) string
		want []string
	}{
		"a cluster without slots": {func(t *testing.T) string { return redistest.StartLoneNode(t).URL() },
			[]string{"(cluster of 0): CLUSTERDOWN Hash slot not served; no node of the cluster serves the key's slot"}},
		"a cluster that lacks the key's slot": {func(t *testing.T) string {
			cluster := redistest.StartCluster(t, 3)
			owner, err := cluster.Owner(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			client := redis.NewClient(&redis.Options{Addr: owner.Addr()})
			defer client.Close()
			slot, err := client.ClusterKeySlot(t.Context(), key).Result()
			if err == nil {
				err = client.ClusterDelSlots(t.Context(), int(slot)).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			return "redis://" + owner.Addr()
		}, []string{"(cluster of 3): CLUSTERDOWN ", "; no node of the cluster serves the key's slot"}},
		"a cluster that lacks the key's node": {func(t *testing.T) string {
			cluster := redistest.StartCluster(t, 3)
			owner, err := cluster.Owner(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Stop(); err != nil {
				t.Fatal(err)
			}
			entry := cluster.Nodes[0]
			if entry == owner {
				entry = cluster.Nodes[1]
			}
			return "redis://" + entry.Addr()
		}, []string{"(cluster of 3): ", "connection refused; start it"}},
		"a database of a cluster": {func(t *testing.T) string { return "redis://" + redistest.StartCluster(t, 3).Nodes[0].Addr() + "/3" }, []string{"smaller number"}},
		"a sentinel without a master": {func(t *testing.T) string { return "redis://" + redistest.StartSentinel(t, 1, nil).Addr() },
			[]string{"the sentinel knows no master; tell it of one (SENTINEL MONITOR)"}},
		"a sentinel of two masters": {func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"one": "127.0.0.1:1", "two": "127.0.0.1:2"}).Addr()
		}, []string{"the sentinel knows one, two; choose one: append ?master_name=NAME to --redis"}},
		"a sentinel of another master": {func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"one": "127.0.0.1:1"}).Addr() + "?master_name=two"
		}, []string{`the sentinel knows no master "two", but one; choose one: append ?master_name=NAME to --redis`}},
		"a sentinel whose master is gone": {func(t *testing.T) string {
			return "redis://" + redistest.StartSentinel(t, 1, map[string]string{"one": "127.0.0.1:1"}).Addr()
		}, []string{"(sentinel: master one at 127.0.0.1:1): ", "connection refused; start it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, cli.ExitFailed, []string{test.url(t)}, test.want)
		})
	}
}

// rightsOf are those that app/README.md gives to a user, in the line that has a certain one among them.
func rightsOf(t *testing.T, user, one string) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^ +ACL SETUSER ` + user + ` (\W.*` + regexp.QuoteMeta(one) + `.*)$`).FindStringSubmatch(document(t, appReadme))
	if line == nil {
		t.Fatalf("app/README.md gives no rights to %s", user)
	}
	return strings.Fields(line[1])
}

// The user that app/README.md makes can run every mode, and has no right too many: without any of them something is refused.
func TestTheUserOfTheReadmeHasTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	rights := rightsOf(t, "lab on >PASSWORD", "")
	urlOf := func(t *testing.T, rights []string) string {
		server := redistest.Start(t, append([]string{"--user", "default", "off", "--user", "lab", "on", ">s3cret", "resetchannels"}, rights...)...)
		return "redis://lab:s3cret@" + server.Addr()
	}
	quick := []string{"--workers", "20", "--rounds", "2", "--ttl", "300ms", "--backend-latency", "50ms", "--json", "-", "--quiet"}
	traffic := []string{"--for", "1s", "--ttl", "300ms", "--lock-ttl", "300ms", "--backend-latency", "20ms", "--json", "-"}
	url := urlOf(t, rights)
	for _, mode := range []string{"broken", "coalesced", "fixed", "woken", "early", "stale"} { // one after the other: they have one key
		args := append([]string{mode, "--redis", url}, quick...)
		if mode == "early" || mode == "stale" {
			args = append([]string{mode, "--redis", url}, traffic...)
		}
		out := run(t.Context(), t, nil, args...)
		equal(t, mode+": exit code", out.code, cli.ExitOK)
		if strings.Contains(out.stderr, "NOPERM") || strings.Contains(out.stderr, "warning") {
			t.Errorf("%s printed:\n%s", mode, out.stderr)
		}
		_, object, _ := strings.Cut(out.stdout, "{")
		r := decode(t, "{"+strings.TrimSuffix(strings.TrimSpace(object), "]"))
		equal(t, mode+": standing", r.RedisCommands.Standing, redisstore.NotAvailable)
		equal(t, mode+": store errors", r.StoreErrors, 0)
	}
	for i, right := range rights {
		t.Run("without "+right, func(t *testing.T) {
			t.Parallel()
			url := urlOf(t, slices.Delete(slices.Clone(rights), i, i+1))
			out := run(t.Context(), t, nil, append([]string{"woken", "--redis", url}, quick...)...)
			if !strings.Contains(out.stderr, "NOPERM") {
				t.Errorf("exit %d, and nothing is refused:\n%s", out.code, out.stderr)
			}
		})
	}
}

// With what the README says of the count, Redis's own is exact.
func TestTheRightsForTheCountAreThoseOfTheReadme(t *testing.T) {
	t.Parallel()
	count := regexp.MustCompile("(?s)count is\\s+`not available` then: it needs\\s+`([^`]+)`").FindStringSubmatch(document(t, appReadme))
	if count == nil {
		t.Fatal("app/README.md does not say what the count needs")
	}
	for _, rights := range [][]string{strings.Fields(count[1]), strings.Fields(count[1])[1:]} {
		server := redistest.Start(t, slices.Concat([]string{"--user", "default", "on", "nopass", "resetchannels", "resetkeys", "-@all"}, rightsOf(t, "lab on >PASSWORD", ""), rights)...)
		out := run(t.Context(), t, nil, "fixed", "--redis", server.URL(), "--workers", "5", "--rounds", "1", "--backend-latency", "50ms", "--json", "-", "--quiet")
		equal(t, "exit code", out.code, cli.ExitOK)
		want := redisstore.Exact
		if len(rights) == 1 {
			want = redisstore.NotAvailable
		}
		equal(t, strings.Join(rights, " ")+": standing", decode(t, out.stdout).RedisCommands.Standing, want)
	}
}

func TestTheUserOfTheReadmeHasTheRightsThatAreNeededInACluster(t *testing.T) {
	t.Parallel()
	more := rightsOf(t, "lab", "+cluster|slots")
	for i := range len(more) + 1 { // the last one has all
		rights, missing := more, "nothing"
		if i < len(more) {
			rights, missing = slices.Delete(slices.Clone(more), i, i+1), more[i]
		}
		t.Run("without "+missing, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, slices.Concat([]string{"--user", "lab", "on", ">s3cret", "resetchannels"}, rightsOf(t, "lab on >PASSWORD", ""), rights)...)
			for _, mode := range []string{"fixed", "woken"} {
				out := run(t.Context(), t, nil, mode, "--redis", "redis://lab:s3cret@"+cluster.Nodes[i%3].Addr(),
					"--rounds", "2", "--ttl", "300ms", "--backend-latency", "50ms", "--quiet")
				switch refused := strings.Contains(out.stdout+out.stderr, "NOPERM"); {
				case missing == "nothing":
					equal(t, mode+": exit code", out.code, cli.ExitOK)
					equal(t, mode+": something is refused", refused, false)
				case mode == "woken":
					equal(t, mode+": something is refused", refused, true)
				}
			}
		})
	}
}

func TestTheUserOfTheReadmeHasTheRightsThatAreNeededToMeet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, slices.Concat([]string{"--user", "lab", "on", ">s3cret", "resetchannels"}, rightsOf(t, "lab on >PASSWORD", ""), rightsOf(t, "lab", "+xadd"))...)
	prices := httptest.NewServer(backend.NewHandler(backend.NewRuns(backend.Config{Latency: 50 * time.Millisecond}, nil), backend.HandlerConfig{}))
	t.Cleanup(prices.Close)
	way := []string{"--redis", "redis://lab:s3cret@" + server.Addr(), "--backend", prices.URL, "--quiet"}
	joined := make(chan output)
	go func() { joined <- run(t.Context(), t, nil, append([]string{"join", "rights"}, way...)...) }()
	out := run(t.Context(), t, nil, append([]string{"fixed", "--joiners", "1", "--run-id", "rights", "--workers", "5", "--rounds", "2", "--ttl", "300ms", "--json", "-"}, way...)...)
	in := <-joined
	equal(t, "exit code of the coordinator", out.code, cli.ExitOK)
	equal(t, "exit code of the joiner", in.code, cli.ExitOK)
	equal(t, "backend calls", decode(t, out.stdout).BackendCalls, 2)
	if said := out.stderr + in.stdout + in.stderr; strings.Contains(said, "NOPERM") {
		t.Errorf("something is refused:\n%s", said)
	}
}

// Without rings, woken costs time and keeps its promise; a line before the run says so.
func TestARingThatIsRefusedIsAWarning(t *testing.T) {
	t.Parallel()
	for without, test := range map[string]struct {
		tried  string
		failed int
	}{
		"-publish":      {`tried PUBLISH "product:42:price:filling" at redis://127.0.0.1:`, 2},
		"-subscribe":    {`tried SUBSCRIBE "product:42:price:filling" at redis://127.0.0.1:`, 0},
		"resetchannels": {`; grant the channel, which has the fill lock's name (ACL SETUSER NAME &KEY:filling)`, 2},
	} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "&*", "+@all", without)
			out := run(t.Context(), t, nil, "woken", "--redis", server.URL(), "--rounds", "2", "--ttl", "300ms", "--backend-latency", "50ms", "--json", "-", "--quiet")
			equal(t, "exit code", out.code, cli.ExitOK)
			r := decode(t, out.stdout)
			equal(t, "backend calls", r.BackendCalls, 2)
			equal(t, "failed rings", r.RingsFailed, test.failed)
			if n := strings.Count(out.stderr, "warning: "); n != 1 || !strings.Contains(out.stderr, "warning: who waits for a fill is not woken") || !strings.Contains(out.stderr, test.tried) {
				t.Errorf("%d warnings, want 1 with %s:\n%s", n, test.tried, out.stderr)
			}
		})
	}
	t.Run("not in fixed", func(t *testing.T) {
		t.Parallel()
		out := run(t.Context(), t, nil, "fixed", "--redis", restricted(t, "-publish").URL(), "--rounds", "1", "--workers", "2", "--backend-latency", "10ms", "--quiet")
		equal(t, "exit code", out.code, cli.ExitOK)
		if strings.Contains(out.stderr, "warning") {
			t.Errorf("printed:\n%s", out.stderr)
		}
	})
}
