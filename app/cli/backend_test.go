package cli_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cli"
)

// startBackend runs cachelab backend in this process until the test ends, and returns its address. Its end must be in order.
func startBackend(t *testing.T, args ...string) (address string, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan output, 1)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	free.Close()
	go func() {
		ended <- run(ctx, t, nil, append([]string{"backend", "--listen", listen, "--telemetry", "off"}, args...)...)
	}()
	end = func() {
		stop()
		if out := <-ended; out.code != cli.ExitOK || out.stderr != "" {
			t.Errorf("the backend's end: exit %d, %s", out.code, out.stderr)
		}
	}
	return "http://" + listen, end
}

func TestARunCallsABackendThatIsAnotherProcess(t *testing.T) {
	address, end := startBackend(t, "--backend-latency", "120ms", "--backend-capacity", "5", "--backend-fail", "31")
	defer end()
	fast := []string{"--redis", "embedded", "--workers", "10", "--rounds", "3", "--ttl", "800ms", "--telemetry", "off", "--json", "-", "--quiet", "--backend", address}
	out := run(t.Context(), t, nil, append([]string{"broken"}, fast...)...) // it may come before the service listens
	r := decode(t, out.stdout)
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "calls", r.BackendCalls, 30)
	equal(t, "redundant", r.Redundant, 27)
	equal(t, "peak", r.BackendPeak, 10)
	equal(t, "url", r.PriceService.URL, address)
	equal(t, "text", r.PriceService.Text, "")
	equal(t, "told", fmt.Sprintf("%+v", *r.PriceService.Told), "{Calls:30 Peak:10 Redundant:27 Repeated:0}")
	equal(t, "ages are known", r.Age.Max > 0, true) // it reads the same clock
	if want := "\n  backend at " + address + ": 120ms +-10%, 5 at once, fails: 31; redis embedded"; !strings.Contains(out.stderr, want) {
		t.Errorf("no %q in:\n%s", want, out.stderr)
	}

	out = run(t.Context(), t, nil, append([]string{"fixed"}, fast...)...) // another run: from call 1
	r = decode(t, out.stdout)
	equal(t, "exit code of fixed", out.code, cli.ExitOK)
	equal(t, "calls of fixed", r.BackendCalls, 3)
	equal(t, "told of fixed", fmt.Sprintf("%+v", *r.PriceService.Told), "{Calls:3 Peak:1 Redundant:0 Repeated:0}")
	if want := "lock TTL 10s, wait timeout 11.24s"; !strings.Contains(out.stderr, want) { // by the service's latency
		t.Errorf("no %q in:\n%s", want, out.stderr)
	}

	for args, want := range map[string]string{
		"--backend-latency 10ms":     "--backend-latency: what the service at " + address + " is like, it decides itself: give the flag to cachelab backend",
		"--backend-fail all":         "--backend-fail: what the service",
		"--backend http://x/y":       `--backend "http://x/y": want a URL like http://127.0.0.1:8042`,
		"--backend http://u:pw@x:80": "want a URL like",
	} {
		out := run(t.Context(), t, nil, append(append([]string{"fixed"}, fast...), strings.Fields(args)...)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) || strings.Contains(out.stderr, "pw@") {
			t.Errorf("%s: exit %d, want %q in:\n%s", args, out.code, want, out.stderr)
		}
	}
	// A variable may be there for the service.
	env := map[string]string{"CACHELAB_BACKEND_LATENCY": "1h", "CACHELAB_BACKEND": address}
	out = run(t.Context(), t, env, append([]string{"fixed"}, fast[:len(fast)-2]...)...)
	equal(t, "exit code with variables", out.code, cli.ExitOK)

	out = run(t.Context(), t, nil, "backend", "--listen", strings.TrimPrefix(address, "http://"), "--telemetry", "off")
	if out.code != cli.ExitFailed || !strings.Contains(out.stderr, "address already in use: choose another --listen") {
		t.Errorf("a taken port: exit %d:\n%s", out.code, out.stderr)
	}
	out = run(t.Context(), t, nil, "backend", "--listen", "8042")
	if out.code != cli.ExitUsage || !strings.Contains(out.stderr, `--listen "8042": want host:port`) {
		t.Errorf("no address: exit %d:\n%s", out.code, out.stderr)
	}
}

// A backend that is there and then is not: the calls fail with its name, and the run says what nobody knows.
func TestABackendThatDiesUnderARunIsNamed(t *testing.T) {
	served := atomic.Int64{}
	dead, die := context.WithCancel(context.Background())
	runs := backend.NewRuns(backend.Config{Latency: 50 * time.Millisecond}, nil)
	handler := backend.NewHandler(runs, backend.HandlerConfig{})
	server, err := backend.Listen("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/price" && served.Add(1) > 2 || dead.Err() != nil {
			die()
			panic(http.ErrAbortHandler) // the connection breaks
		}
		handler.ServeHTTP(w, r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(t.Context())
	began := time.Now()
	out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--workers", "5", "--rounds", "4", "--ttl", "300ms", "--telemetry", "off", "--json", "-",
		"--quiet", "--backend", server.URL)
	r := decode(t, out.stdout)
	equal(t, "exit code", out.code, cli.ExitVerdict)
	equal(t, "told", r.PriceService.Told, nil)
	for _, want := range []string{"price service at " + server.URL + ": EOF: whether the call arrived is not known", "what it counted is not known: price service at " + server.URL} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("no %q in:\n%s", want, out.stderr)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
