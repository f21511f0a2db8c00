//go:build e2e

package deploy

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A gallery is stored as it was printed. On its page each query has an answer, the numbers are the runs', and the bars are exact at every zoom.
func TestTheGalleryOnItsDashboard(t *testing.T) {
	s := startServers(t)
	file, records := filepath.Join(t.TempDir(), "runs.json"), t.TempDir()
	command := exec.CommandContext(t.Context(), s.program, "gallery", "--each", "6s", "--ttl", "2s", "--redis", "embedded", "--telemetry", "on", "--json", file)
	command.Env = append(os.Environ(), "CACHELAB_RECORDS="+records, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+s.otlp+"/v1/traces",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+s.prometheus+"/api/v1/otlp/v1/metrics")
	if said, err := command.CombinedOutput(); err != nil && command.ProcessState.ExitCode() != 3 {
		t.Fatalf("cachelab gallery: %v\n%s", err, said)
	}
	var runs []struct {
		ran
		Redundant int
	}
	if err := json.Unmarshal([]byte(read(t, file)), &runs); err != nil || len(runs) < 4 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	verify := exec.CommandContext(t.Context(), s.program, "verify", "--records", records, "--jaeger-url", s.jaeger, "--prometheus-url", s.prometheus)
	if said, err := verify.CombinedOutput(); err != nil {
		t.Errorf("cachelab verify: %v\n%s", err, said)
	}
	g := look(s)
	asked := 0
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if d.UID != "gallery" {
					continue
				}
				asked++
				if got := numbers(g.ask(t, q.Expr, q.Instant)); len(got) == 0 {
					t.Errorf("%s: %s has no value: %s", p.Title, q.RefID, q.Expr)
				}
			}
		}
	}
	if asked < 30 {
		t.Errorf("found only %d queries", asked)
	}
	calls, waited := map[string]float64{}, map[string]float64{}
	for i, r := range runs {
		calls[r.Mode], waited[r.Mode] = float64(r.BackendCalls), float64(r.Outcomes["waited"])
		for title, want := range map[string]float64{"Calls of the gallery": float64(r.BackendCalls), "Redundant calls of the gallery": float64(r.Redundant),
			"Latency p99 of the gallery": r.Latency["p99"] / 1000} {
			got := numbers(g.ask(t, panelOf(t, title).Targets[i].Expr, true))
			if len(got) != 1 || math.Abs(got[0]-want) > 1e-6 { // the JSON has microseconds
				t.Errorf("%s: %s is %v, want %v", r.Mode, title, got, want)
			}
		}
	}
	for _, step := range zooms {
		zoomed := g
		zoomed.step = step
		zoomed.to = g.to.Add(step).Truncate(step)
		zoomed.from = zoomed.to.Add(-(g.to.Sub(g.from) + step).Truncate(step))
		for title, want := range map[string]map[string]float64{"Calls in turn": calls, "Waiting in turn": waited} {
			if got := sums(zoomed.ask(t, panelOf(t, title).Targets[0].Expr, false), "mode"); !maps.Equal(got, want) {
				t.Errorf("%s, a bar for each %v: %v, want %v", title, step, got, want)
			}
		}
	}
	// One line for each strategy.
	for _, q := range panelOf(t, "Galleries").Targets {
		if got := g.ask(t, q.Expr, q.Instant); len(got) != len(runs) {
			t.Errorf("Galleries: %s has %d lines, want %d: %s", q.RefID, len(got), len(runs), strings.TrimSpace(q.Expr))
		}
	}
}
