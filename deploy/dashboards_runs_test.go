//go:build e2e

package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

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
func (s *servers) begin(t *testing.T, arguments ...string) func() ran {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	command := exec.CommandContext(ctx, s.program, append(arguments, "--quiet", "--redis", "embedded", "--telemetry", "on", "--json", file)...)
	command.Env = append(os.Environ(), "CACHELAB_RECORDS=", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+s.otlp+"/v1/traces",
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
