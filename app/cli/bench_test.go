package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cachelab/app/internal/redistest"
	"cachelab/telemetry/otlptest"
)

// BenchmarkLoadCPU is the CPU time of whole load runs, with telemetry off and on, by turns: the ratio is what
// telemetry costs. The receiver is in this process, and not counted.
func BenchmarkLoadCPU(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "cachelab")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "cachelab/app").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	server, receiver := redistest.Start(b), otlptest.Start(b)
	cpu := func(telemetry string) time.Duration {
		c := exec.CommandContext(b.Context(), binary, "load", "--redis", server.URL(), "--ttl", "500ms", "--telemetry", telemetry)
		c.Env = append(os.Environ(), "CACHELAB_RECORDS=", "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	var off, on time.Duration
	for b.Loop() {
		off += cpu("off")
		on += cpu("on")
	}
	b.ReportMetric(off.Seconds()/float64(b.N), "off-cpu-s")
	b.ReportMetric(on.Seconds()/float64(b.N), "on-cpu-s")
	b.ReportMetric(on.Seconds()/off.Seconds(), "on/off")
	b.ReportMetric(0, "ns/op")
}
