package drill_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cachelab/app/cli"
	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/redisstore"
)

func TestColdStart(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "cold-start")
		equal(t, "backend calls", d.BackendCalls, 3)
		equal(t, "expiries", d.Expiries, 3)
		equal(t, "filled", d.Outcomes["filled"], 3)
		equal(t, "errors", d.Outcomes["error"], 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestSlowFill(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "slow-fill")
		between(t, "backend calls", d.BackendCalls, 3*2, 3*4) // a TTL of 300 ms ends three times in a fill of 1 s
		between(t, "peak", d.BackendPeak, 2, 4)
		equal(t, "expiries", d.Expiries, 3)
		// Each fill's lock is lost; whoever comes too late to fill gives its lock back, unless that is late too.
		between(t, "lost", d.Lock.Lost, d.BackendCalls, d.BackendCalls+d.Lock.Rechecked)
		equal(t, "lost and released", d.Lock.Lost+d.Lock.Released, d.BackendCalls+d.Lock.Rechecked)
		equal(t, "errors", d.Outcomes["error"], 0)
		if !strings.Contains(d.printed, "DEL refused, the next winner's lock lives on for ") {
			t.Error("no lock was seen to survive")
		}
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestBackendError(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "backend-error")
		equal(t, "backend calls", d.BackendCalls, 2+20+1)
		equal(t, "backend errors", d.BackendErrors, 1+20)
		equal(t, "peak", d.BackendPeak, 1)
		equal(t, "errors", d.Outcomes["error"], 1+20)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "waited", d.Outcomes["waited"], 18+19)
		equal(t, "expiries", d.Expiries, 2) // the cycle that failed ends in the next round
		equal(t, "released", d.Lock.Released, d.Lock.Acquired)
		equal(t, "store errors", d.StoreErrors, 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestCancelledWinner(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "cancelled-winner")
		equal(t, "backend calls", d.BackendCalls, 2*2)
		equal(t, "backend errors", d.BackendErrors, 2)
		equal(t, "peak", d.BackendPeak, 1)
		equal(t, "errors", d.Outcomes["error"], 2)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "expiries", d.Expiries, 2)
		equal(t, "released", d.Lock.Released, d.Lock.Acquired)
		equal(t, "store errors", d.StoreErrors, 0)
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

func TestDeadWinnerKillsAProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "dead-winner")
		equal(t, "backend calls", d.BackendCalls, 2+1)
		equal(t, "backend errors", d.BackendErrors, 1)
		equal(t, "errors", d.Outcomes["error"], 1)
		equal(t, "filled", d.Outcomes["filled"], 2)
		equal(t, "expiries", d.Expiries, 2)
		equal(t, "released", d.Lock.Released, d.Lock.Acquired-1)
		equal(t, "lost", d.Lock.Lost, 0)
		d.checkCommands(t, redisstore.Exact, 1) // the winner's process is no stranger

		pid := regexp.MustCompile(`this worker is process (\d+)`).FindStringSubmatch(d.printed)
		if pid == nil || !strings.Contains(d.Verdict.Text, "process "+pid[1]+" won and was killed in mid-fill (signal: killed)") {
			t.Fatalf("process %q, verdict %q", pid, d.Verdict.Text)
		}
		process, _ := strconv.Atoi(pid[1])
		if err := syscall.Kill(process, 0); err != syscall.ESRCH {
			t.Errorf("process %d: %v, want none", process, err)
		}
		// The waiters are linked to the dead winner's MISS, whose steps are spans that name the process.
		miss, reported := "", 0
		for _, s := range d.spans {
			for _, a := range s.Attributes {
				if a.Key == "process.pid" && a.Value.GetIntValue() == int64(process) {
					reported++
					if s.Name == "backend call" {
						miss = string(s.ParentSpanId)
					}
				}
			}
		}
		equal(t, "reported spans", reported, 4) // GET, SET NX PX, GET, backend call
		links := 0
		for _, s := range d.spans {
			for _, link := range s.Links {
				if string(link.SpanId) == miss {
					links++
				}
			}
		}
		equal(t, "waiters linked to the dead winner", links, 19)
	})
}

func TestLostRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, redis string) {
		d := do(t, redis, "lost-redis")
		equal(t, "rounds", d.Rounds, 3)
		equal(t, "backend calls", d.BackendCalls, 3)
		equal(t, "backend calls without a lock", d.BackendCalls-(d.Lock.Acquired-d.Lock.Rechecked), 0)
		equal(t, "filled", d.Outcomes["filled"], 3)
		equal(t, "errors", d.Outcomes["error"], 49)
		equal(t, "expiries", d.Expiries, 2) // the fill of the outage was not stored
		equal(t, "unanswered", d.Unanswered, facts.Steps{Set: 1, Release: 1})
		equal(t, "lost", d.Lock.Lost, 0)
		between(t, "store errors", d.StoreErrors, 49, 49*6+4) // a worker gives up at its third, and 3 x DEL if its lock may be there; the winner: SET and 3 x DEL
		equal(t, "Redis counted", d.RedisCommands.Standing, redisstore.NotAvailable)
		if redis == "embedded" {
			equal(t, "redis", d.Redis, "embedded")
			return
		}
		if d.Redis == redis {
			t.Error("the drill stopped a server that is not its own")
		}
		address, err := url.Parse(d.Redis)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", address.Host); err == nil {
			conn.Close()
			t.Error("the drill's own redis-server is still there")
		}
	})
}

func TestManyKeys(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, redis string) {
		d := do(t, redis, "many-keys")
		equal(t, "backend calls", d.BackendCalls, 600)
		equal(t, "expiries", d.Expiries, 600)
		equal(t, "filled", d.Outcomes["filled"], 600)
		equal(t, "released", d.Lock.Released, 600)
		d.checkCommands(t, redisstore.Exact, 0)
		number := `(\d+(?:\.\d)?)`
		m := regexp.MustCompile(fmt.Sprintf(`200 keys with one TTL: %[1]s calls in flight at peak, %[1]s a second; with 20%% jitter: %[1]s and %[1]s, which is %[1]s and %[1]s times less$`,
			number)).FindStringSubmatch(d.Verdict.Text)
		if m == nil {
			t.Fatalf("verdict: %s", d.Verdict.Text)
		}
		n := make([]float64, len(m))
		for i := range m[1:] {
			n[i+1], _ = strconv.ParseFloat(m[i+1], 64)
		}
		between(t, "calls in flight without jitter", int(n[1]), 80, 200)
		between(t, "calls in flight with jitter", int(n[3]), 15, 100) // 200 x 150 ms, spread over 2 s: 15 at any time
	})
}

func TestNoRecheck(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, redis string) {
		d := do(t, redis, "no-recheck", "--rounds", "11")
		equal(t, "expiries", d.Expiries, 11)
		equal(t, "re-checks that hit", d.Lock.Rechecked, 0)
		equal(t, "locks", d.Lock.Acquired, d.BackendCalls)
		equal(t, "redundant", d.Redundant, 0)
		equal(t, "repeated", d.Repeated, d.BackendCalls-11) // each call too many
		if d.BackendCalls < 11+5 || !strings.Contains(d.Verdict.Text, ": with 5 workers held before their lock 6 calls where 1 would do; ") ||
			!strings.HasSuffix(d.Verdict.Text, fmt.Sprintf("; %d calls too many in 10 rounds left to nature", d.BackendCalls-11-5)) {
			t.Errorf("%d calls: %s", d.BackendCalls, d.Verdict.Text)
		}
		d.checkCommands(t, redisstore.Exact, 0)
	})
}

// A drill whose fault does not happen, or does more harm than expected, is not ok.
func TestVerdictsThatAreNotOk(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"slow-fill", "--lock-ttl", "5s", "--backend-latency", "50ms"}, "but the lock's TTL of 5s is longer than the fill of 50ms"},
		{[]string{"cancelled-winner", "--workers", "1"}, "more than one worker"},
		{[]string{"cancelled-winner", "--wait-timeout", "20ms"}, "but round 1 had "},
		{[]string{"backend-error", "--wait-timeout", "20ms"}, "but round 1 had "},
		{[]string{"dead-winner", "--lock-ttl", "2s", "--wait-timeout", "300ms"}, "nobody took over: 1 calls in that cycle; but 1 calls, 1 of them failed"},
		{[]string{"many-keys", "--ttl-jitter", "0", "--ttl", "1s"}, "but the jitter did not halve the peaks"},
		{[]string{"no-recheck", "--rounds", "1", "--workers", "4"}, "more than 5 workers"},
		{[]string{"lost-message", "--workers", "1"}, "more than one worker"},
		{[]string{"slow-fill-woken", "--lock-ttl", "5s", "--backend-latency", "50ms"}, "but the lock's TTL of 5s is longer than the fill of 50ms"},
		{[]string{"slow-fill-stale", "--lock-ttl", "5s", "--for", "2s"}, "but the lock's TTL of 5s is longer than the fill of 600ms"},
		{[]string{"early-unlocked", "--early-lock", "--for", "3s"}, "but no call was redundant"},
		{[]string{"flush", "--for", "1s"}, "but it was not emptied: that takes three TTLs of traffic"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			out := program(t, nil, append([]string{"drill"}, append(test.args, "--redis", "embedded", "--quiet")...)...)
			equal(t, "exit code", out.code, cli.ExitVerdict)
			if !strings.Contains(out.stdout, "verdict: not ok, ") || !strings.Contains(out.stdout, test.want) {
				t.Errorf("no %q in:\n%s%s", test.want, out.stdout, out.stderr)
			}
		})
	}
}

func TestAnUnknownDrillListsTheKnownOnes(t *testing.T) {
	for _, args := range [][]string{{"drill", "earthquake"}, {"drill"}} {
		out := program(t, nil, args...)
		equal(t, "exit code", out.code, cli.ExitUsage)
		for _, d := range drill.All() {
			if !strings.Contains(out.stderr, fmt.Sprintf("\n  %-16s %s\n", d.Name, d.Short)) {
				t.Errorf("%s is not in:\n%s", d.Name, out.stderr)
			}
		}
	}
	for _, args := range [][]string{{"drill", "all", "now"}, {"drill", "slow-fill", "now"}, {"drill", "slow-fill", "--rounds", "9"}} {
		equal(t, fmt.Sprint(args), program(t, nil, args...).code, cli.ExitUsage)
	}
}

// The page has a section for each drill, in their order, and its figures are of a run of all that the embedded Redis will do for.
func TestTheReadmeTellsOfEachDrill(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(text), -1)
	all := drill.All()
	if len(sections) != len(all) {
		t.Fatalf("%d sections for %d drills", len(sections), len(all))
	}
	for i, d := range all {
		equal(t, "section", sections[i][1], d.Name)
		if onEmbedded := d.Owns == drill.Nothing || d.Owns == drill.One; onEmbedded && !strings.Contains(string(text), "│ "+d.Name+" ") {
			t.Errorf("the table has no row for %s", d.Name)
		}
	}
	for _, part := range []string{"**Broken:**", "**Seen:**", "**Trace:**", "**Dashboard:**", "**Rule:**"} {
		equal(t, part, strings.Count(string(text), part), len(all))
	}
}

func TestWithoutARedisServerLostRedisUsesTheEmbeddedOne(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out := program(t, nil, "drill", "lost-redis", "--redis", "redis://127.0.0.1:1", "--workers", "10", "--quiet", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "redis", decode[facts.Run](t, out.stdout).Redis, "embedded")
	if !strings.Contains(out.stderr, "neither redis-server nor valkey-server on this machine (Debian: apt-get install redis-server), so it uses the embedded one") {
		t.Errorf("not said in:\n%s", out.stderr)
	}
}
