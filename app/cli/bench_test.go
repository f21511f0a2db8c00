package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/telemetry/otlptest"
)

// BenchmarkLoadCPU is what telemetry costs a whole run, in processor time: load with it on and off, each with 500 workers and
// with one, by turns. What one worker needs is what a run needs anyhow; the rest is the requests'. The receiver is in this
// process, and not counted.
func BenchmarkLoadCPU(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "cachelab")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "cachelab/app").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	server, receiver := redistest.Start(b), otlptest.Start(b)
	file := filepath.Join(b.TempDir(), "run.json")
	type cost struct {
		cpu             time.Duration
		requests, spans int
	}
	load := func(telemetry, workers string) cost {
		c := exec.CommandContext(b.Context(), binary, "load", "--redis", server.URL(), "--ttl", "500ms", "--telemetry", telemetry,
			"--workers", workers, "--json", file)
		c.Env = append(os.Environ(), "CACHELAB_RECORDS=", "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		var run facts.Run
		text, err := os.ReadFile(file)
		if err := errors.Join(err, json.Unmarshal(text, &run)); err != nil || run.Spans.Dropped > 0 {
			b.Fatalf("%v, spans %+v", err, run.Spans)
		}
		return cost{c.ProcessState.UserTime() + c.ProcessState.SystemTime(), run.Requests, run.Spans.Ended}
	}
	add := func(sum *cost, more, less cost) {
		sum.cpu += more.cpu - less.cpu
		sum.requests += more.requests - less.requests
		sum.spans += more.spans - less.spans
	}
	var on, off cost
	for b.Loop() {
		add(&on, load("on", "500"), load("on", "1"))
		add(&off, load("off", "500"), load("off", "1"))
	}
	telemetry := float64((on.cpu - off.cpu).Microseconds())
	b.ReportMetric(telemetry/float64(on.requests), "us/request")
	b.ReportMetric(telemetry/float64(on.spans), "us/span")
	b.ReportMetric(float64(off.cpu.Microseconds())/float64(off.requests), "off-us/request")
	b.ReportMetric(on.cpu.Seconds()/off.cpu.Seconds(), "on/off")
	b.ReportMetric(0, "ns/op")
}
