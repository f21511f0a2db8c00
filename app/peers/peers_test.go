package main

import (
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cachelab/app/redisserver"
)

// asProgram is the variable that makes this test the program.
const asProgram = "PEERS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" || os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// measure returns a measurer on a Redis of its own.
func measure(t *testing.T) *measurer {
	t.Helper()
	server, err := redisserver.New(t.Context())
	switch {
	case errors.Is(err, redisserver.ErrNone) && os.Getenv("CACHELAB_REQUIRE_REDIS") == "":
		t.Skipf("%v: peers are measured on a real Redis", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &measurer{plan: plan{peers: peers(), parts: allParts(), repeats: 1, rounds: 2, fill: 100 * time.Millisecond}, redis: "redis://" + server.Addr()}
	if m.keeper, err = newKeeper(m.redis); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.keeper.client.Close() })
	if _, err := m.keeper.version(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func find(t *testing.T, name string) peer {
	t.Helper()
	all, err := named([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// Two processes of five workers. Who shares a flight in a process needs as many calls as there are processes, who has a lock
// needs one; where the number of commands does not depend on who is first, it is exact.
func TestAnExpiryCostsEachPeerWhatItPromises(t *testing.T) {
	m := measure(t)
	for _, one := range []struct {
		peer     string
		calls    float64
		commands float64 // a request; 0 where it depends
	}{
		{"broken", 10, 2},
		{"singleflight", 2, 0.4},
		{"gocache", 2, 0},
		{"goredis-cache", 2, 0.4},
		{"sturdyc", 2, 0.4},
		{"coalesced", 2, 0.4},
		{"redislock", 1, 0},
		{"redsync", 1, 0},
		{"fixed", 1, 0},
		{"rueidisaside", 1, 0},
		{"woken", 1, 0},
	} {
		t.Run(one.peer, func(t *testing.T) {
			s, err := m.herd(t.Context(), find(t, one.peer), shape{2, 5})
			if err != nil {
				t.Fatal(err)
			}
			if s.calls != one.calls || s.failed != 0 || s.expiries != 2 || len(s.extra) != 20 {
				t.Errorf("%v calls an expiry, %d failed (%s), %d expiries, %d answers; want %v, 0, 2, 20", s.calls, s.failed, s.err, s.expiries, len(s.extra), one.calls)
			}
			if one.commands > 0 && s.commands != one.commands || s.commands <= 0 {
				t.Errorf("%v commands a request, want %v", s.commands, one.commands)
			}
			if s.bytes < 10*s.commands || s.cpu <= 0 || slices.Min(s.extra) < 0 {
				t.Errorf("%v bytes and %v of CPU a request; the shortest extra wait is %v", s.bytes, s.cpu, slices.Min(s.extra))
			}
		})
	}
}

// Who has a lock waits for its end; who has none has called already.
func TestADeadWinner(t *testing.T) {
	for _, name := range []string{"singleflight", "woken"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := measure(t)
			after, err := m.death(t.Context(), find(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if locks := name == "woken"; locks != (after > lockTTL/2) {
				t.Errorf("somebody took over after %v; the lock lives for %v", after, lockTTL)
			}
		})
	}
}

func TestAFailingBackend(t *testing.T) {
	m := measure(t)
	for name, want := range map[string]int{"broken": failureWorkers, "singleflight": 1, "coalesced": 1, "woken": 1} {
		if calls, err := m.failure(t.Context(), find(t, name)); err != nil || calls != want {
			t.Errorf("%s: %d calls, %v; want %d", name, calls, err, want)
		}
	}
}

func TestAProcessThatFailsSaysWhy(t *testing.T) {
	m := measure(t)
	m.redis = "redis://127.0.0.1:1"
	if _, err := m.herd(t.Context(), find(t, "woken"), shape{2, 5}); err == nil || !strings.Contains(err.Error(), "woken, 2x5") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error is %v", err)
	}
}

// The whole command, from the flags to the files.
func TestTheCommand(t *testing.T) {
	m := measure(t)
	dir := t.TempDir()
	js, svg := filepath.Join(dir, "peers.json"), filepath.Join(dir, "peers.svg")
	var out strings.Builder
	err := execute(t.Context(), []string{"--redis", m.redis, "--peers", "woken,singleflight", "--shape", "2x3,1x4", "--parts", "herd,failure", "--repeats", "2",
		"--expiries", "1", "--fill", "50ms", "--json", js, "--plot", svg, "--quiet"}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| singleflight | v", "\n2x3: median of 2 repeats", "\n1x4: median of 2 repeats", "| woken        | 2        | 1.00 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	text, err := os.ReadFile(js)
	if err != nil || strings.Count(string(text), `"calls_per_expiry"`) != 4 || !strings.Contains(string(text), `"failure_calls": 1`) {
		t.Errorf("%v, %s", err, text)
	}
	if picture, err := os.ReadFile(svg); err != nil || !strings.Contains(string(picture), "  singleflight<") || !strings.Contains(string(picture), ">2x3 (calls)<") {
		t.Errorf("%v, %.500s", err, picture)
	}
}

func TestBadUsage(t *testing.T) {
	for _, one := range []struct{ args, want string }{
		{"--peers woken,memcached", `--peers: there is no peer "memcached": want some of broken,singleflight,`},
		{"--shape 8", `--shape: "8": want processes x workers, like 8x62`},
		{"--shape 0x5", `--shape: "0x5"`},
		{"--parts herd,birth", `--parts: there is no part "birth": want some of herd,death,failure`},
		{"--repeats 0", "--repeats and --expiries: want at least 1"},
		{"--fill 1ms", "--fill: want 10ms to 10s"},
		{"--plot peers.pdf", "--plot: want a file.svg or a file.png"},
		{"--redis localhost", "--redis: read the URL of Redis"},
		{"--rounds 5", "flag provided but not defined: -rounds"},
		{"woken", `"woken" is no flag`},
	} {
		program := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(one.args)...)
		program.Env = append(os.Environ(), asProgram+"=1")
		out, err := program.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(string(out), "peers: "+one.want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v, %s", one.args, err, out)
		}
	}
	if _, err := parse([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

// A herd counts from the release of its first process, whichever that is.
func TestExtraWait(t *testing.T) {
	got := extra([]answer{{2_000, 260_000}, {1_000, 252_000}, {3_000, 251_500}}, 250*time.Millisecond)
	want := []time.Duration{9 * time.Millisecond, time.Millisecond, 500 * time.Microsecond}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var all []time.Duration
	for n := range 100 {
		all = append(all, time.Duration(100-n))
	}
	if p50, p99, none := quantile(all, 0.5), quantile(all, 0.99), quantile(nil, 0.99); p50 != 50 || p99 != 99 || none != 0 {
		t.Errorf("of 1 to 100: p50 %d, p99 %d; of none: %d", p50, p99, none)
	}
	if s := spreadOf([]sample{{calls: 4}, {calls: 1}, {calls: 3}, {calls: 9}}, func(s sample) float64 { return s.calls }); s != (spread{3.5, 1, 9}) {
		t.Errorf("the spread of 4, 1, 3 and 9 is %v", s)
	}
}

func TestLinesOfCode(t *testing.T) {
	source := "// Package x.\npackage x\n\nimport (\n\t\"fmt\"\n)\n\n// f is.\nfunc f() {\n\n\tfmt.Println( // here\n\t\t1)\n\t/* not\n\tthis */\n}\n"
	if n, err := linesOf("x.go", []byte(source)); err != nil || n != 4 {
		t.Errorf("%d lines, %v; want 4", n, err)
	}
	for _, p := range peers() {
		if n, err := linesOfUse(p); err != nil || n < 4 {
			t.Errorf("%s: %d lines, %v", p.name, n, err)
		}
	}
}

func TestThePlot(t *testing.T) {
	var r results
	for _, name := range allNames() {
		r.Peers = append(r.Peers, peerResult{Name: name})
		for n, shape := range []string{"1x50", "1x500", "8x62"} {
			ms := number(float64(len(name)) * float64(n+1))
			r.Herds = append(r.Herds, herdResult{Peer: name, Shape: shape, P99: spread{ms, ms / 2, ms * 2}, Calls: spread{Median: 1}})
		}
	}
	slices.SortStableFunc(r.Herds, func(a, b herdResult) int { return strings.Compare(a.Shape, b.Shape) })
	file := filepath.Join(t.TempDir(), "peers.png")
	if err := r.draw(file); err != nil {
		t.Fatal(err)
	}
	picture, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	if c, err := png.DecodeConfig(picture); err != nil || c.Width < 500 || c.Height < 300 {
		t.Error(fmt.Sprint(c), err)
	}
	if err := (results{}).draw(file); err == nil {
		t.Error("nothing was drawn without an error")
	}
}
