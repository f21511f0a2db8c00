package drill_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"cachelab/app/cli"
	"cachelab/app/redisstore"
)

// withServers skips a test where there is nothing to start servers from. The drills do not use the Redis that is given.
func withServers(t *testing.T) (redis string) {
	t.Helper()
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skipf("the drills with servers of their own are skipped: %v", err)
	}
	return "redis://127.0.0.1:1"
}

func TestFailover(t *testing.T) {
	d := do(t, withServers(t), "failover")
	equal(t, "backend calls", d.BackendCalls, 1+2+1)
	equal(t, "backend errors", d.BackendErrors, 0)
	equal(t, "expiries", d.Expiries, 3)
	equal(t, "acquired", d.Lock.Acquired, 1+2+1+d.Lock.Rechecked)
	equal(t, "lost", d.Lock.Lost, 1)
	equal(t, "released", d.Lock.Released, d.Lock.Acquired-1)
	equal(t, "filled", d.Outcomes["filled"], 1+2+1)
	equal(t, "filled, waited and failed", d.Outcomes["filled"]+d.Outcomes["waited"]+d.Outcomes["error"], 3*50)
	equal(t, "standing", d.RedisCommands.Standing, redisstore.NotAvailable) // what the old master counted is gone with it
	equal(t, "peak", d.BackendPeak, 2)

	// The two winners of round 2 have their locks from two servers.
	nodes := map[int64]bool{}
	for _, s := range d.spans {
		if s.Name == "SET NX PX" && attribute(s.Attributes, "lock.acquired").GetBoolValue() {
			nodes[attribute(s.Attributes, "server.port").GetIntValue()] = true
		}
	}
	equal(t, "servers that gave a lock", len(nodes), 2)
}

func TestSlotMove(t *testing.T) {
	d := do(t, withServers(t), "slot-move")
	equal(t, "backend calls", d.BackendCalls, 3)
	equal(t, "expiries", d.Expiries, 3)
	equal(t, "filled", d.Outcomes["filled"], 3)
	equal(t, "waited", d.Outcomes["waited"], 3*49)
	equal(t, "store errors", d.StoreErrors, 0)
	equal(t, "lost", d.Lock.Lost, 0)
	d.checkCommands(t, redisstore.Exact, 0) // each command is one span, and is executed once

	var words []string
	sentOn := 0
	for _, s := range d.spans {
		for i, e := range s.Events {
			if e.Name != "ASK" && e.Name != "MOVED" {
				continue
			}
			words = append(words, e.Name)
			if i == 0 {
				sentOn++
			}
			if last := i == len(s.Events)-1; last && attribute(s.Attributes, "server.port").GetIntValue() != attribute(e.Attributes, "server.port").GetIntValue() {
				t.Errorf("%s was sent on to %v, and its span says %v", s.Name, e.Attributes, attribute(s.Attributes, "server.port"))
			}
		}
	}
	if !slices.Contains(words, "ASK") || !slices.Contains(words, "MOVED") {
		t.Errorf("%d commands were sent on, with %q", sentOn, slices.Compact(slices.Sorted(slices.Values(words))))
	}
}

// Where they cannot be had, one clear message says why, and "drill all" goes on without them.
func TestADrillWithoutItsServersSaysSo(t *testing.T) {
	for _, name := range []string{"failover", "slot-move"} {
		out := program(t, nil, "drill", name, "--redis", "embedded")
		equal(t, "exit code", out.code, cli.ExitFailed)
		if want := "this drill starts redis-server processes of its own"; !strings.Contains(out.stderr, want) || !strings.Contains(out.stderr, "and --redis is embedded") {
			t.Errorf("%s: want %q in:\n%s", name, want, out.stderr)
		}
	}
	t.Setenv("PATH", t.TempDir())
	out := program(t, nil, "drill", "failover", "--redis", "redis://127.0.0.1:1")
	equal(t, "exit code", out.code, cli.ExitFailed)
	if want := "a master and a replica: neither redis-server nor valkey-server on this machine"; !strings.Contains(out.stderr, want) {
		t.Errorf("want %q in:\n%s", want, out.stderr)
	}
}

func attribute(all []*commonpb.KeyValue, key string) *commonpb.AnyValue {
	for _, a := range all {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}
