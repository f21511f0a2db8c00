//go:build e2e

package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startBackend starts "cachelab backend" as a process of its own, whose spans go to the stack, and returns its address.
func (s *servers) startBackend(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	port := unusedPorts(t, 1)[0]
	p := start(t, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + s.otlp + "/v1/traces", "OTEL_SERVICE_NAME=another"}, s.program,
		append([]string{"backend", "--listen", "127.0.0.1:" + port}, args...)...)
	address := "http://127.0.0.1:" + port
	eventually(t, startLimit, address+" answers", func() error {
		_, err := fetch(t, address+"/healthz")
		return err
	})
	return p, address
}

// services counts the spans of traces by service and name.
func (s *servers) services(t *testing.T, ids [][]string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, id := range slices.Concat(ids...) {
		var traces struct {
			Data []struct {
				Spans []struct {
					OperationName, ProcessID string
				}
				Processes map[string]struct{ ServiceName string }
			}
		}
		if err := get(t, s.jaeger+"/api/traces/"+id, &traces); err != nil {
			t.Fatal(err)
		}
		for _, trace := range traces.Data {
			for _, span := range trace.Spans {
				n[trace.Processes[span.ProcessID].ServiceName+": "+span.OperationName]++
			}
		}
	}
	return n
}

// The backend is a service of its own in Jaeger, inside the lab, in a process of its own, and shared by the processes of a run.
func TestThePriceServiceIsStoredAsItWasPrinted(t *testing.T) {
	s := startServers(t)
	_, address := s.startBackend(t)
	for _, test := range []struct {
		args                   []string
		calls, queued, perHerd int
	}{
		{[]string{"broken", "--rounds", "2", "--ttl", "1500ms"}, 100, 80, 50},
		{[]string{"fixed", "--rounds", "2", "--ttl", "500ms"}, 2, 0, 1},
		{[]string{"broken", "--rounds", "2", "--ttl", "1500ms", "--backend", address}, 100, 80, 50},
		{[]string{"woken", "--rounds", "2", "--ttl", "500ms", "--backend", address}, 2, 0, 1},
		{[]string{"broken", "--rounds", "2", "--ttl", "1500ms", "--processes", "3", "--workers", "10"}, 60, 40, 30},
		{[]string{"broken", "--rounds", "2", "--ttl", "1500ms", "--processes", "3", "--workers", "10", "--backend", address}, 60, 40, 30},
	} {
		r := s.lab(t, append(test.args, "--verify")...)
		if n := strings.Count(r.out, "the app, Redis, Jaeger and Prometheus agree"); r.code != 0 || n != 1 || r.json.BackendCalls != test.calls {
			t.Errorf("%q: exit %d, %d calls:\n%s", test.args, r.code, r.json.BackendCalls, r.out)
			continue
		}
		got := s.services(t, r.json.TraceIDs)
		for name, want := range map[string]int{"cachelab: backend call": test.calls, "price-service: GET /price": test.calls,
			"price-service: compute": test.calls, "price-service: queued": test.queued} {
			if got[name] != want {
				t.Errorf("%q: %d spans %s, want %d", test.args, got[name], name, want)
			}
		}
		if peak := fmt.Sprintf(`peak in flight +%d\n`, test.perHerd); !regexp.MustCompile(peak).MatchString(r.out) {
			t.Errorf("%q: no %s in:\n%s", test.args, peak, r.out)
		}
	}
	var known struct{ Data []string }
	if err := get(t, s.jaeger+"/api/services", &known); err != nil {
		t.Fatal(err)
	}
	slices.Sort(known.Data)
	if !slices.Equal(known.Data, []string{"cachelab", "price-service"}) {
		t.Errorf("services: %q", known.Data)
	}
}

// A service that dies in the middle is a backend error with its name; the run ends by itself, and says what nobody knows.
func TestAPriceServiceThatDiesIsNamed(t *testing.T) {
	s := startServers(t)
	backend, address := s.startBackend(t)
	timer := time.AfterFunc(1500*time.Millisecond, func() { backend.kill() })
	defer timer.Stop()
	r := s.lab(t, "fixed", "--rounds", "4", "--ttl", "600ms", "--backend", address)
	if r.code == 0 || r.json.Verdict.OK || !strings.Contains(r.out, "price service at "+address+": ") || !strings.Contains(r.out, "what it counted is not known") {
		t.Errorf("exit %d, verdict %v:\n%s", r.code, r.json.Verdict.OK, r.out)
	}
	v := s.lab(t, "verify")
	if !strings.Contains(v.out, "what it counted is not known") || strings.Contains(v.out, "differs") {
		t.Errorf("verify: exit %d:\n%s", v.code, v.out)
	}
}

// SIGTERM ends it in order: its spans are there, and its exit code is 0.
func TestABackendEndsInOrder(t *testing.T) {
	s := startServers(t)
	backend, address := s.startBackend(t, "--backend-latency", "50ms")
	for range 3 {
		if _, err := fetch(t, address+"/price?key=k"); err != nil {
			t.Fatal(err)
		}
	}
	if err := backend.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := backend.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
	var traces struct{ Data []struct{ Spans []struct{} } }
	eventually(t, startLimit, "three traces of price-service", func() error {
		err := get(t, s.jaeger+"/api/traces?service=price-service&limit=10", &traces)
		if err == nil && len(traces.Data) != 3 {
			err = fmt.Errorf("%d traces", len(traces.Data))
		}
		return err
	})
}
