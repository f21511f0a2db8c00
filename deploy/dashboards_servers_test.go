package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// servers are a Prometheus and a Jaeger of this test's own, with the stack's configuration, and the program.
type servers struct {
	prometheus, jaeger string // base URLs of their APIs
	otlpTraces         string
	cachelab           string // the program
}

// startDashboardServers starts them on free ports; they end with the test.
func startDashboardServers(t *testing.T) servers {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Jaeger and Prometheus, which take minutes to build the first time")
	}
	programs := serverPrograms(t)
	ports := distinctPorts(t, 6)
	at := func(i int) string { return "127.0.0.1:" + ports[i] }
	s := servers{
		prometheus: "http://" + at(0),
		jaeger:     "http://" + at(1),
		otlpTraces: "http://" + at(2) + "/v1/traces",
		cachelab:   filepath.Join(t.TempDir(), "cachelab"),
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", s.cachelab, "./app").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	arguments := flags(stack(t).Services["prometheus"], map[string]string{
		"--config.file":        "prometheus.yml",
		"--storage.tsdb.path":  t.TempDir(),
		"--web.listen-address": at(0),
	})
	startServer(t, nil, filepath.Join(programs, "prometheus"), arguments...)
	startServer(t, []string{
		"JAEGER_QUERY_HTTP_PORT=" + ports[1], "JAEGER_OTLP_HTTP_PORT=" + ports[2], "JAEGER_OTLP_GRPC_PORT=" + ports[3],
		"JAEGER_QUERY_GRPC_PORT=" + ports[4], "JAEGER_HEALTH_PORT=" + ports[5],
	}, filepath.Join(programs, "jaeger"), "--config", "jaeger.yaml")
	for _, ready := range []string{s.prometheus + "/-/ready", "http://" + at(5) + "/status"} {
		eventually(t, 30*time.Second, ready, func() error {
			_, err := fetch(t, ready)
			return err
		})
	}
	return s
}

// serverPrograms is the folder with jaeger, prometheus and promtool.
func serverPrograms(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "servers/build")
	command.Stderr = os.Stderr // it says what it builds
	out, err := command.Output()
	if err != nil {
		t.Fatalf("build the servers: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// startServer runs a program until the test ends, and shows its last words if the test failed.
func startServer(t *testing.T, environment []string, program string, arguments ...string) {
	t.Helper()
	var said bytes.Buffer
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("%s had ended: %v", program, err)
		}
		late := time.AfterFunc(10*time.Second, func() { command.Process.Kill() })
		defer late.Stop()
		command.Wait()
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), said.Bytes()[max(0, said.Len()-3000):])
		}
	})
}

// distinctPorts are free.
func distinctPorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // all at once, so that all differ
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// ran is what the tests read of a run's JSON.
type ran struct {
	Run, Mode                 string
	Workers, Rounds, Requests int
	BackendCalls              int `json:"backend_calls"`
	BackendPeak               int `json:"backend_peak"`
	Expiries                  int
	CallsPerExpiry            float64            `json:"calls_per_expiry"`
	Latency                   map[string]float64 `json:"latency_ms"`
	TraceIDs                  [][]string         `json:"trace_ids"`
	Verdict                   struct{ OK bool }
	Started                   time.Time
	Duration                  float64 `json:"duration_s"`
	Outcomes                  map[string]int
}

func (r ran) end() time.Time { return r.Started.Add(time.Duration(r.Duration * float64(time.Second))) }

// begin starts a run that delivers to the servers; the returned function waits for its end.
func (s servers) begin(t *testing.T, arguments ...string) func() ran {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	command := exec.CommandContext(ctx, s.cachelab, append(arguments, "--quiet", "--redis", "embedded", "--telemetry", "on", "--json", file)...)
	command.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+s.otlpTraces,
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+s.prometheus+"/api/v1/otlp/v1/metrics")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return func() ran {
		t.Helper()
		defer cancel()
		if err := command.Wait(); err != nil {
			t.Fatalf("cachelab %v: %v\n%s", arguments, err, said.String())
		}
		var r ran
		if err := json.Unmarshal([]byte(read(t, file)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// fetch is a GET that answers 200.
func fetch(t *testing.T, address string) ([]byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

// ask fetches the data of an API's answer, of Prometheus or Jaeger.
func ask[T any](t *testing.T, address string, parameters url.Values) T {
	t.Helper()
	body, err := fetch(t, address+"?"+parameters.Encode())
	if err != nil {
		t.Fatalf("%s %v: %v", address, parameters, err)
	}
	var answer struct{ Data T }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return answer.Data
}

// eventually tries until there is no error; the last one tells what is missing.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v, after %v", what, err, limit)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
