package fleet_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/fleet"
	"cachelab/app/fleet/meeting"
	"cachelab/app/internal/redistest"
)

// place is where processes of one run find each other: a Redis and a backend.
type place struct {
	*redistest.Server
	backend string // its URL
}

// newPlace starts both. A backend call takes about as long as is said.
func newPlace(t *testing.T, latency string) place {
	t.Helper()
	p := start(t, "backend", "--listen", "127.0.0.1:0", "--backend-latency", latency)
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	eventually(t, "the backend listens", func() bool { return url.MatchString(p.text()) })
	return place{redistest.Start(t), url.FindString(p.text())}
}

// herdOf are the arguments of a coordinator that waits for joiners.
func (p place) herdOf(id string, joiners int, more ...string) []string {
	return append([]string{"fixed", "--joiners", fmt.Sprint(joiners), "--run-id", id, "--workers", "5", "--rounds", "3", "--ttl", "500ms", "--lock-ttl", "3s",
		"--redis", p.URL(), "--backend", p.backend}, more...)
}

// joiner starts one.
func joiner(t *testing.T, server place, more ...string) *program {
	t.Helper()
	return start(t, append([]string{"join", "--quiet=false", "--redis", server.URL()}, more...)...)
}

// says waits until the program has said something.
func (p *program) says(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q of %q", text, p.cmd.Args[1:]), func() bool { return strings.Contains(p.text(), text) })
}

// streams are the keys of meetings.
func streams(t *testing.T, c *redis.Client) []string {
	t.Helper()
	all, _, err := c.Scan(t.Context(), 0, "cachelab:*", 10_000).Result()
	must(t, err)
	return all
}

func TestJoinersTakePartInOneRunWithOneVerdict(t *testing.T) {
	server := newPlace(t, "250ms")
	c, file := client(t, server.Server), filepath.Join(t.TempDir(), "run.json")
	early := joiner(t, server, "herd-1")
	early.says("run herd-1 is not open for joiners at " + server.URL() + ", and no other is; waiting for it")
	p := start(t, server.herdOf("herd-1", 2, "--processes", "1", "--json", file)...)
	early.says("joined run herd-1 (rounds, fixed) as process 2 of 3, with 5 workers")
	// The settings of the run may be given once more, in other words.
	late := joiner(t, server, "--ttl", "0.5s", "--workers", "5")
	for _, one := range []*program{p, early, late} {
		if code := one.wait(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, one.text())
		}
	}
	contains(t, early.text(), "round 3: 5 requests, ", "run herd-1 has ended: 15 requests and ")
	contains(t, late.text(), "as process 3 of 3")
	contains(t, p.text(), fmt.Sprintf("process 2 (pid %d on ", early.cmd.Process.Pid), "wake lag         not available", "age of values    not available", "release spread   not available")
	run := read(t, file)
	equal(t, "run", run.ID, "herd-1")
	equal(t, "requests", run.Requests, 45)
	equal(t, "backend calls", run.BackendCalls, 3)
	equal(t, "calls per expiry", run.CallsPerExpiry, 1.0)
	equal(t, "verdict", run.Verdict.OK, true)
	equal(t, "Redis's counts", run.RedisCommands.Standing, "exact")
	equal(t, "GETs that Redis counted", run.RedisCommands.Get-run.RedisCommands.Eval, run.Gets.Hit+run.Gets.Miss)
	equal(t, "processes", len(run.Processes), 3)
	for i, one := range run.Processes {
		equal(t, "requests of a process", one.Requests, 15)
		equal(t, "is elsewhere", one.Elsewhere, i > 0)
	}
	if left := streams(t, c); len(left) > 0 {
		t.Errorf("left in Redis are %q", left)
	}
}

func TestWhoCannotJoinIsRefusedByName(t *testing.T) {
	server := newPlace(t, "250ms")
	file := filepath.Join(t.TempDir(), "run.json")
	p := start(t, server.herdOf("herd-1", 2, "--json", file)...)
	p.says("waiting up to 1m0s for 2 joiners")
	refused := func(one *program, there, here string) {
		t.Helper()
		equal(t, "exit code", one.wait(), 1)
		contains(t, one.text(), there)
		p.says(here)
	}
	differs := `its user gave --workers "6", which is "5" in the run, and --ttl "3s", which is "500ms" in the run: leave it out there, or give the same`
	other := joiner(t, server, "herd-1", "--workers", "6", "--ttl", "3s", "--rounds", "3")
	refused(other, "refused by the coordinator: "+differs, fmt.Sprintf("process %d on ", other.cmd.Process.Pid))
	contains(t, p.text(), "refused: "+differs)

	refused(joiner(t, server, "herd-2", "--join-wait", "1s"), "run herd-2 is not open for joiners at "+server.URL()+"; open are: herd-1, after 1s: start its coordinator with --joiners N --run-id herd-2", "")

	another := client(t, server.Server)
	line, err := (meeting.Run{ID: "herd-1", Redis: another}).Join(t.Context())
	must(t, err)
	hello, err := fleet.NewMessage(fleet.KindHello, fleet.Hello{Protocol: 99, Version: "v9", PID: 4711, Host: "there"})
	must(t, err)
	must(t, line.Send(t.Context(), hello))
	m, err := line.Receive(t.Context())
	must(t, err)
	equal(t, "the answer", m.Kind, fleet.KindRefused)
	contains(t, string(m.Body), "protocol 99", fmt.Sprintf("%d", fleet.Protocol))
	if _, err := line.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the refusal: %v", err)
	}
	must(t, line.Close())
	must(t, another.Close()) // a stranger to the run, who left before it began
	p.says("process 4711 on there was refused: ")

	first, second := joiner(t, server, "herd-1"), joiner(t, server, "herd-1")
	first.says("round 1:")
	third := joiner(t, server, "herd-1")
	refused(third, "refused by the coordinator: the run has 2 joiners, and all are there", fmt.Sprintf("process %d on ", third.cmd.Process.Pid))
	for _, one := range []*program{p, first, second} {
		if code := one.wait(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, one.text())
		}
	}
	equal(t, "Redis's counts", read(t, file).RedisCommands.Standing, "exact") // a joiner that was refused is no stranger
	if left := streams(t, client(t, server.Server)); len(left) > 0 {
		t.Errorf("left in Redis are %q", left)
	}
}

func TestAJoinerThatIsKilledInARoundIsNamed(t *testing.T) {
	server := newPlace(t, "1s")
	c := client(t, server.Server)
	p := start(t, server.herdOf("herd-1", 2, "--processes", "1")...)
	one, other := joiner(t, server, "herd-1"), joiner(t, server, "herd-1")
	p.inRound(c)
	must(t, one.cmd.Process.Kill())
	equal(t, "exit code", p.wait(), 1)
	contains(t, p.text(), fmt.Sprintf("(pid %d on ", one.cmd.Process.Pid), "fell silent for 3s", "verdict: not ok")
	equal(t, "summaries", strings.Count(p.text(), "summary of "), 1)
	equal(t, "exit code of the other", other.wait(), 0)
	if left := streams(t, c); len(left) > 0 {
		t.Errorf("left in Redis are %q", left)
	}
	eventually(t, "the lock goes with its TTL", func() bool { return c.Exists(t.Context(), lock).Val() == 0 })
}

func TestAJoinerLeavesOnCtrlC(t *testing.T) {
	server := newPlace(t, "1s")
	c := client(t, server.Server)
	p := start(t, server.herdOf("herd-1", 1)...)
	one := joiner(t, server, "herd-1")
	p.inRound(c)
	must(t, one.cmd.Process.Signal(syscall.SIGINT))
	equal(t, "exit code of the joiner", one.wait(), 1)
	contains(t, one.text(), "left run herd-1 before its end: ", "interrupt")
	equal(t, "lock", c.Exists(t.Context(), lock).Val(), 0)
	equal(t, "exit code", p.wait(), 1)
	contains(t, p.text(), fmt.Sprintf("process 1 (pid %d on ", one.cmd.Process.Pid), "left run herd-1 before its end")
}

func TestJoinersLeaveWhenTheirCoordinatorEnds(t *testing.T) {
	server := newPlace(t, "1s")
	c := client(t, server.Server)
	for _, test := range []struct {
		by   syscall.Signal
		says string
		code int
	}{
		{syscall.SIGINT, "", 0},
		{syscall.SIGKILL, "the coordinator of run herd-1: fell silent for 10s", 1},
	} {
		p := start(t, server.herdOf("herd-1", 1)...)
		one := joiner(t, server, "herd-1")
		p.inRound(c)
		must(t, p.cmd.Process.Signal(test.by))
		killed := time.Now()
		equal(t, "exit code of the joiner", one.wait(), test.code)
		contains(t, one.text(), test.says)
		t.Logf("%v: the joiner left after %v", test.by, time.Since(killed).Round(100*time.Millisecond))
		equal(t, "lock", c.Exists(t.Context(), lock).Val(), 0)
		p.wait()
		eventually(t, "the streams go by themselves", func() bool { return len(streams(t, c)) == 0 })
		t.Logf("%v: nothing is left after %v", test.by, time.Since(killed).Round(100*time.Millisecond))
	}
}

func TestJoinersThatDoNotComeAreNotWaitedForForEver(t *testing.T) {
	server := newPlace(t, "250ms")
	p := start(t, server.herdOf("herd-1", 2, "--join-wait", "3s")...)
	one := joiner(t, server)
	one.says("joined run herd-1")
	equal(t, "exit code", p.wait(), 1)
	contains(t, p.text(), "1 joiner of 2 came within 3s: start them sooner, give a longer --join-wait, or fewer --joiners")
	equal(t, "exit code of the one", one.wait(), 1)
	contains(t, one.text(), "the coordinator of run herd-1: ")
}

func TestAJoinerThatStaysJoinsOneRunAfterTheOther(t *testing.T) {
	server := newPlace(t, "250ms")
	one := joiner(t, server, "--stay")
	for _, id := range []string{"herd-1", "herd-2"} {
		file := filepath.Join(t.TempDir(), "run.json")
		p := start(t, server.herdOf(id, 1, "--json", file)...)
		equal(t, "exit code", p.wait(), 0)
		run := read(t, file)
		equal(t, "requests", run.Requests, 15)
		equal(t, "Redis's counts", run.RedisCommands.Standing, "exact")
		one.says("run " + id + " has ended")
	}
	must(t, one.cmd.Process.Signal(syscall.SIGTERM))
	equal(t, "exit code", one.wait(), 0)
}

// Processes that are started alike, as by an Indexed Job, in any order.
func TestProcessesThatAreStartedAlikeFindTheirPlacesByRank(t *testing.T) {
	server := newPlace(t, "250ms")
	var all []*program
	for _, rank := range []string{"2", "0", "1"} {
		all = append(all, start(t, server.herdOf("herd-1", 2, "--processes", "1", "--rank", rank)...))
	}
	for _, one := range all {
		if code := one.wait(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, one.text())
		}
	}
	contains(t, all[1].text(), "requests         45 = 3 processes x 5 workers x 3 rounds", "calls per expiry 1.0")
}

func TestWhatAJoinerCannotDoIsRefusedBeforeAnythingIsStarted(t *testing.T) {
	server := newPlace(t, "250ms")
	for args, wrong := range map[string]string{
		"join herd-1 --redis embedded":               "a joiner needs the Redis of the run: give --redis its URL, not embedded",
		"join herd-1 herd-2":                         "join takes the id of a run",
		"join her{d}":                                "want 1 to 64 letters",
		"join herd-1 --rounds=x":                     "--rounds",
		"fixed --joiners 2 --redis embedded":         "--joiners need a Redis that they can reach: give --redis a URL, not embedded",
		"fixed --joiners 51":                         "from 0 to 50",
		"fixed --joiners 2":                          "--joiners need a backend that all can reach",
		"fixed --rank 1 --joiners 1":                 "--rank needs --run-id",
		"fixed --rank 3 --joiners 2 --run-id herd-1": "--rank 3 is beyond the 2 --joiners",
		"fixed --run-id a:b":                         "want 1 to 64 letters",
		"fixed --joiners 50 --workers 50000":         "want at most 100000 workers in all",
		"compare --joiners 2 --backend " + server.backend + " --redis " + server.URL(): "--joiners and --run-id are for one run, and these are several",
		"compare --run-id herd-1 --redis " + server.URL():                              "--joiners and --run-id are for one run, and these are several",
		"drill slow-fill --joiners 2":                                                  "unknown flag: --joiners",
	} {
		p := start(t, strings.Fields(args)...)
		equal(t, "exit code of "+args, p.wait(), 2)
		contains(t, p.text(), wrong)
		equal(t, "lines of "+args, len(regexp.MustCompile(`(?m)^cachelab: `).FindAllString(p.text(), -1)), 1)
	}
}

// Traffic is split as among processes that were started here.
func TestJoinersTakePartInTraffic(t *testing.T) {
	server := newPlace(t, "50ms")
	p := start(t, "stale", "--rate", "100", "--for", "3s", "--ttl", "1s", "--lock-ttl", "1s", "--processes", "1", "--joiners", "1", "--run-id", "herd-1",
		"--redis", server.URL(), "--backend", server.backend)
	one := joiner(t, server, "herd-1")
	equal(t, "exit code", p.wait(), 0)
	equal(t, "exit code of the joiner", one.wait(), 0)
	told := regexp.MustCompile(`(?m)^  process \d +pid \d+.*: (\d+) requests`).FindAllStringSubmatch(p.text(), -1)
	if len(told) != 2 {
		t.Fatalf("it tells of %d processes:\n%s", len(told), p.text())
	}
	contains(t, p.text(), "age of values    not available across machines", "verdict: ok")
	contains(t, one.text(), "stale: "+told[1][1]+" requests, ", "run herd-1 has ended: "+told[1][1]+" requests and ")
}

// A joiner has its own way to Redis: it is told neither the coordinator's nor its password.
func TestNoPasswordGoesOverTheMeeting(t *testing.T) {
	server := newPlace(t, "50ms")
	server.Server = redistest.Start(t, "--requirepass", "s3cret")
	watcher, err := net.Dial("tcp", server.Addr())
	must(t, err)
	defer watcher.Close()
	_, err = io.WriteString(watcher, "AUTH s3cret\r\nMONITOR\r\n")
	must(t, err)
	seen := make(chan string)
	go func() {
		text, _ := io.ReadAll(watcher) // until it is closed
		seen <- string(text)
	}()
	address := "redis://:s3cret@" + server.Addr()
	p := start(t, "fixed", "--rounds", "1", "--joiners", "1", "--run-id", "herd-1", "--workers", "2", "--redis", address, "--backend", server.backend)
	one := start(t, "join", "herd-1", "--redis", address)
	equal(t, "exit code", p.wait(), 0)
	equal(t, "exit code of the joiner", one.wait(), 0)
	must(t, watcher.(*net.TCPConn).CloseRead())
	all := <-seen
	contains(t, all, `\"kind\":\"welcome\"`, `\"backend-latency\"`)
	if strings.Contains(all, "s3cret") {
		t.Error("the password was sent to Redis in a command")
	}
	for _, one := range []*program{p, one} {
		if strings.Contains(one.text(), "s3cret") {
			t.Errorf("it printed the password:\n%s", one.text())
		}
	}
}
