//go:build e2e

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// servers is the stack without Docker: a redis-server, Jaeger and Prometheus on free ports, with the project's own
// configuration files and the flags of compose.yaml.
type servers struct {
	redis, jaeger, otlp, prometheus string // URLs
	program                         string // the lab

	jaegerProcess, prometheusProcess *process
	records                          string // where the lab records its runs
}

// built are the programs: the lab, and the servers' folder. They are built once.
var built = sync.OnceValues(func() (struct{ lab, folder string }, error) {
	var b struct{ lab, folder string }
	folder, err := exec.Command("./servers/build").Output()
	if err != nil {
		return b, fmt.Errorf("build the servers: %w", err)
	}
	b.folder = strings.TrimSpace(string(folder))
	b.lab, err = filepath.Abs(filepath.Join("..", ".bin", "cachelab"))
	if err != nil {
		return b, err
	}
	build := exec.Command("make", "build") // as everybody builds it: with its version
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build the lab: %w: %s", err, out)
	}
	return b, nil
})

// startLimit is how long a server may take until it answers.
const startLimit = 30 * time.Second

// startServers starts all three, empty, and stops them when the test ends.
func startServers(t *testing.T) *servers {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ports := unusedPorts(t, 7)
	redis, query, otlp, prometheus, health := ports[0], ports[1], ports[2], ports[3], ports[4]
	s := &servers{
		program: programs.lab,
		redis:   "redis://127.0.0.1:" + redis, jaeger: "http://127.0.0.1:" + query, otlp: "http://127.0.0.1:" + otlp,
		prometheus: "http://127.0.0.1:" + prometheus, records: t.TempDir(),
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	start(t, nil, "redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	s.jaegerProcess = start(t, []string{
		"JAEGER_QUERY_HTTP_PORT=" + query, "JAEGER_QUERY_GRPC_PORT=" + ports[5], "JAEGER_OTLP_HTTP_PORT=" + otlp,
		"JAEGER_OTLP_GRPC_PORT=" + ports[6], "JAEGER_HEALTH_PORT=" + health,
	}, filepath.Join(programs.folder, "jaeger"), "--config", filepath.Join(here, "config", "jaeger.yaml"))
	s.prometheusProcess = start(t, nil, filepath.Join(programs.folder, "prometheus"), flags(stack(t).Services["prometheus"], map[string]string{
		"--config.file":        filepath.Join(here, "config", "prometheus.yml"),
		"--storage.tsdb.path":  t.TempDir(),
		"--web.listen-address": "127.0.0.1:" + prometheus,
	})...)
	eventually(t, startLimit, "redis-server is ready", func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:"+redis)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	for _, address := range []string{"http://127.0.0.1:" + health + "/status", s.prometheus + "/-/ready"} {
		eventually(t, startLimit, address+" answers", func() error {
			_, err := fetch(t, address)
			return err
		})
	}
	return s
}

// flags is the command line that compose gives to a service's program, with some flags set to another value. A test
// that runs the program without Docker thus runs it with the same flags.
func flags(service types.ServiceConfig, change map[string]string) []string {
	change = maps.Clone(change)
	var all []string
	for _, argument := range service.Command {
		name, _, _ := strings.Cut(argument, "=")
		if value, ok := change[name]; ok {
			argument = name + "=" + value
			delete(change, name)
		}
		all = append(all, argument)
	}
	for _, name := range slices.Sorted(maps.Keys(change)) {
		all = append(all, name+"="+change[name])
	}
	return all
}

// process is a server that a test started.
type process struct {
	*exec.Cmd
	log  *bytes.Buffer
	once sync.Once
}

func start(t *testing.T, environ []string, name string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(name, args...), log: &bytes.Buffer{}}
	p.Env = append(os.Environ(), environ...)
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), tail(p.log.String(), 15))
		}
	})
	return p
}

// kill ends the process by its pid, and waits for it.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
	})
}

// resident is the memory of the process in MB.
func (p *process) resident(t *testing.T) int {
	t.Helper()
	status := read(t, fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	var kb int
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindStringSubmatch(status)
	if m != nil {
		fmt.Sscan(m[1], &kb)
	}
	return kb / 1000
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// unusedPorts are n of 127.0.0.1 that nobody listens on, all different.
func unusedPorts(t *testing.T, n int) []string {
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

// get reads JSON over HTTP.
func get(t *testing.T, address string, into any) error {
	t.Helper()
	body, err := fetch(t, address)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

// post sends OTLP as JSON.
func post(t *testing.T, address, body string) {
	t.Helper()
	response, err := http.Post(address, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(response.Body)
		t.Fatalf("%s: %s: %s", address, response.Status, answer)
	}
}

// result is a run of the program.
type result struct {
	code int
	out  string
	json struct {
		Run          string         `json:"run"`
		Mode         string         `json:"mode"`
		BackendCalls int            `json:"backend_calls"`
		Polls        int            `json:"polls"`
		TraceIDs     [][]string     `json:"trace_ids"`
		Overhead     float64        `json:"overhead_s"`
		Outcomes     map[string]int `json:"outcomes"`
		Spans        struct{ Ended, Exported, Dropped int }
		Verdict      struct{ OK bool }
	}
}

// lab runs the program against the servers.
func (s *servers) lab(t *testing.T, args ...string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.json")
	if args[0] != "verify" {
		args = append(args, "--json", file, "--quiet")
	}
	c := exec.CommandContext(t.Context(), s.program, args...)
	c.Env = append(os.Environ(), "CACHELAB_REDIS="+s.redis, "CACHELAB_RECORDS="+s.records, "CACHELAB_JAEGER_URL="+s.jaeger,
		"CACHELAB_PROMETHEUS_URL="+s.prometheus, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+s.otlp+"/v1/traces",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+s.prometheus+"/api/v1/otlp/v1/metrics")
	out, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{code: c.ProcessState.ExitCode(), out: string(out)}
	if args[0] != "verify" {
		text := strings.TrimSuffix(strings.TrimPrefix(read(t, file), "["), "]\n") // of several, the first
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&r.json); err != nil {
			t.Fatalf("%v in:\n%s", err, out)
		}
	}
	return r
}

// query is an instant query; it returns the values.
func (s *servers) query(t *testing.T, promQL string) []float64 {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := get(t, s.prometheus+"/api/v1/query?query="+url.QueryEscape(promQL), &answer); err != nil {
		t.Fatal(err)
	}
	var all []float64
	for _, r := range answer.Data.Result {
		all = append(all, number(t, r.Value[1]))
	}
	return all
}

// queryRange is a range query with a step of a second; it returns all values of all series.
func (s *servers) queryRange(t *testing.T, promQL string, from, to time.Time) []float64 {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Values [][2]any }
		}
	}
	address := fmt.Sprintf("%s/api/v1/query_range?query=%s&start=%d&end=%d&step=1", s.prometheus, url.QueryEscape(promQL), from.Unix(), to.Unix())
	if err := get(t, address, &answer); err != nil {
		t.Fatal(err)
	}
	var all []float64
	for _, r := range answer.Data.Result {
		for _, v := range r.Values {
			all = append(all, number(t, v[1]))
		}
	}
	return all
}

func number(t *testing.T, text any) float64 {
	t.Helper()
	var v float64
	if _, err := fmt.Sscan(fmt.Sprint(text), &v); err != nil {
		t.Fatalf("%v: %v", text, err)
	}
	return v
}
