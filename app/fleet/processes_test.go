package fleet_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/results"
)

// What separates the strategies: each worker calls, each process, or one of all.
func TestEachStrategyCallsAsOftenAsItPromisesWithSeveralProcesses(t *testing.T) {
	server := redistest.Start(t)
	folder := t.TempDir()
	for mode, perExpiry := range map[string]float64{"broken": 40, "coalesced": 4, "fixed": 1, "woken": 1} {
		t.Run(mode, func(t *testing.T) {
			file, kept := filepath.Join(folder, mode+".json"), filepath.Join(folder, mode+".jsonl")
			p := start(t, mode, "--processes", "4", "--workers", "10", "--rounds", "3", "--ttl", "1s", "--backend-capacity", "0", "--redis", server.URL(), "--json", file, "--results", kept)
			if code := p.wait(); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, p.text())
			}
			run := read(t, file)
			equal(t, "calls per expiry", run.CallsPerExpiry, perExpiry)
			equal(t, "backend calls", run.BackendCalls, int(3*perExpiry))
			equal(t, "redundant calls", run.Redundant, int(3*(perExpiry-1)))
			equal(t, "peak in flight", run.BackendPeak, int(perExpiry))
			equal(t, "expiries", run.Expiries, 3)
			equal(t, "requests", run.Requests, 120)
			equal(t, "workers", run.Workers, 40)
			equal(t, "verdict", run.Verdict.OK, true)
			equal(t, "Redis's counts", run.RedisCommands.Standing, "exact")
			equal(t, "GETs that Redis counted", run.RedisCommands.Get-run.RedisCommands.Eval, run.Gets.Hit+run.Gets.Miss)
			equal(t, "processes", len(run.Processes), 4)
			for i, one := range run.Processes {
				equal(t, "number", one.Number, i+1)
				equal(t, "requests of a process", one.Requests, 30)
				equal(t, "is gone", gone(one.PID), true)
			}
			if run.Age.Max == 0 || run.Latency.Max < 200 || run.Spread == nil || run.Spread.Max == 0 {
				t.Errorf("age %v, latency %v, spread %v", run.Age, run.Latency, run.Spread)
			}
			if waited := run.Outcomes["waited"] > 0; waited != (run.WakeLag.Max > 0) {
				t.Errorf("%d waited, wake lag %v", run.Outcomes["waited"], run.WakeLag)
			}
			folded, err := results.Read(kept)
			if err != nil || len(folded) != 1 {
				t.Fatal(len(folded), err)
			}
			again := folded[0].Run()
			again.Duration, again.Overhead, run.Duration, run.Overhead = 0, 0, 0, 0
			if got, want := asJSON(t, again), asJSON(t, run); got != want {
				t.Errorf("folded again:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func asJSON(t *testing.T, r facts.Run) string {
	t.Helper()
	var text strings.Builder
	if err := facts.WriteJSON(&text, r); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// slow are the settings of a run whose rounds are long enough to be disturbed.
func slow(server *redistest.Server, more ...string) []string {
	return append([]string{"fixed", "--processes", "3", "--workers", "5", "--rounds", "3", "--ttl", "500ms", "--lock-ttl", "3s", "--backend-latency", "1s",
		"--redis", server.URL()}, more...)
}

func TestAProcessThatIsKilledInARoundIsNamedAndTheRunEndsInOrder(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	file := filepath.Join(t.TempDir(), "run.json")
	p := start(t, slow(server, "--json", file)...)
	p.inRound(c)
	children := p.children()
	if len(children) != 3 {
		t.Fatalf("it has the processes %v", children)
	}
	must(t, syscall.Kill(children[1], syscall.SIGKILL))
	equal(t, "exit code", p.wait(), 1)
	run := read(t, file)
	equal(t, "verdict", run.Verdict.OK, false)
	equal(t, "rounds", run.Rounds, 2)
	lost := 0
	for _, one := range run.Processes {
		if one.PID == children[1] {
			equal(t, "requests of the one that was killed", one.Requests, 5)
			contains(t, one.Lost, fmt.Sprintf("process %d (pid %d): ", one.Number, one.PID), "signal: killed")
			contains(t, p.text(), fmt.Sprintf("in round 2: process %d (pid %d): its line ended (signal: killed)", one.Number, one.PID))
			lost++
		} else {
			equal(t, "requests of another", one.Requests, 10) // the others went on to the end of the round
			equal(t, "lost", one.Lost, "")
		}
	}
	equal(t, "processes lost", lost, 1)
	equal(t, "summaries", strings.Count(p.text(), "summary of "), 1)
	noneLeft(t, children)
	eventually(t, "the lock goes with its TTL", func() bool { return c.Exists(t.Context(), lock).Val() == 0 })
}

func TestAProcessThatFallsSilentIsNamedAndKilled(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	p := start(t, slow(server)...)
	p.inRound(c)
	children := p.children()
	stopped := time.Now()
	must(t, syscall.Kill(children[0], syscall.SIGSTOP))
	time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(children[0], syscall.SIGCONT) })
	equal(t, "exit code", p.wait(), 1)
	contains(t, p.text(), fmt.Sprintf("(pid %d): fell silent for 3s", children[0]), "verdict: not ok, after 2 of 3 rounds")
	t.Logf("it ended %v after the process was stopped", time.Since(stopped).Round(100*time.Millisecond))
	noneLeft(t, children)
	eventually(t, "the lock goes with its TTL", func() bool { return c.Exists(t.Context(), lock).Val() == 0 })
}

func TestTheProcessesLeaveWhenTheirCoordinatorIsKilled(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	p := start(t, slow(server)...)
	p.inRound(c)
	children := p.children()
	must(t, p.cmd.Process.Kill())
	noneLeft(t, children)
	// They give the lock back as they leave.
	equal(t, "lock", c.Exists(t.Context(), lock).Val(), 0)
}

func TestCtrlCEndsAllProcessesInOrder(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	p := start(t, slow(server)...)
	p.inRound(c)
	children := p.children()
	must(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)) // to all of the terminal's group
	equal(t, "exit code", p.wait(), 1)
	equal(t, "summaries", strings.Count(p.text(), "summary of "), 1)
	contains(t, p.text(), "verdict: not ok, after 2 of 3 rounds")
	if strings.Contains(p.text(), "process 1 (pid") {
		t.Errorf("a process is said to be lost:\n%s", p.text())
	}
	equal(t, "lock", c.Exists(t.Context(), lock).Val(), 0)
	noneLeft(t, children)
}

func noneLeft(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Error("there were no processes")
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return gone(pid) })
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
