//go:build e2e

package deploy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zooms are the intervals of a graph that shows minutes, up to one that shows weeks. Prometheus by itself looks back
// five minutes, so the longest overlook a run that ended early in one, unless the query minds it.
var zooms = []time.Duration{time.Second, 2 * time.Second, 7 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute}

// storedRuns are pushes, one a second, as promtool notes them: _ is none, 0+1x9 begins at 0 and adds 1 nine times. A
// herd 20 minutes after midnight, over within 20 seconds and with a hole among its pushes; at one o'clock 40 minutes of
// live, in both modes.
const storedRuns = `
      - {series: 'cachelab_run_active{cachelab_run="broken-1",mode="broken"}', values: '_x1200 1x19 0'}
      - {series: 'cachelab_backend_calls_total{cachelab_run="broken-1",mode="broken"}', values: '_x1200 0x3 50 _ _ _ 50 100x12'}
      - {series: 'go_memory_allocated_bytes_total{cachelab_run="broken-1"}', values: '_x1200 0x3 7000x16'}
      - {series: 'cachelab_run_active{cachelab_run="live-1",mode="broken"}', values: '_x3600 1x1199 0x1200'}
      - {series: 'cachelab_run_active{cachelab_run="live-1",mode="fixed"}', values: '_x3600 0x1199 1x1199 0'}
      - {series: 'cachelab_backend_calls_total{cachelab_run="live-1",mode="broken"}', values: '_x3600 0+1x2400'}
      - {series: 'cachelab_backend_calls_total{cachelab_run="live-1",mode="fixed"}', values: '_x3600 0x1200 1x1200'}
      - {series: 'go_memory_allocated_bytes_total{cachelab_run="live-1"}', values: '_x3600 0+10x2400'}
`

// In Prometheus's own engine, at three o'clock: the bars of the three hours add up to what was counted.
func TestBarsAddUpAtEveryZoomLongAfterTheRuns(t *testing.T) {
	for _, test := range []struct {
		title, mode string
		want        []string
	}{
		{"Backend calls", ".*", []string{`{labels: '{mode="broken"}', value: 2500}`, `{labels: '{mode="fixed"}', value: 1}`}},
		{"Backend calls", "fixed", []string{`{labels: '{mode="fixed"}', value: 1}`}},
		{"Allocations", ".*", []string{`{labels: '{cachelab_run="broken-1"}', value: 7000}`, `{labels: '{cachelab_run="live-1"}', value: 24000}`}},
		{"Allocations", "fixed", []string{`{labels: '{cachelab_run="live-1"}', value: 24000}`}},
	} {
		file := "tests:\n  - interval: 1s\n    input_series:" + storedRuns + "    promql_expr_test:\n"
		for _, step := range zooms[2:] { // the shortest are more points than promtool takes
			g := grafana{step: step, run: ".*", mode: test.mode}
			query := g.filled(fmt.Sprintf("sum_over_time((%s)[3h:$__interval])", panelOf(t, test.title).Targets[0].Expr))
			file += fmt.Sprintf("      - {expr: '%s', eval_time: 3h, exp_samples: [%s]}\n", query, strings.Join(test.want, ", "))
		}
		path := filepath.Join(t.TempDir(), "zoom.yml")
		write(t, path, file)
		if out, err := promtool(t, ".", "test", "rules", path); err != nil {
			t.Errorf("%s, mode %s: %v: %s", test.title, test.mode, err, out)
		}
	}
}

// A drill breaks something on purpose: the tile stays that of the ordinary run before it.
func TestADrillIsNoNewestRun(t *testing.T) {
	tile := panelOf(t, "Backend calls per expiry")
	file := `evaluation_interval: 1s # promtool stores no later samples than its last evaluation
tests:
  - interval: 1s
    input_series:
      - {series: 'cachelab_run_active{cachelab_run="rounds-1",mode="fixed",scenario="rounds"}', values: '1x20 0x100'}
      - {series: 'cachelab_backend_calls_total{cachelab_run="rounds-1",mode="fixed",scenario="rounds"}', values: '0x3 1x117'}
      - {series: 'cachelab_expiries_total{cachelab_run="rounds-1",mode="fixed",scenario="rounds"}', values: '0x3 1x117'}
      - {series: 'cachelab_run_active{cachelab_run="drill-1",mode="fixed",scenario="drill-no-recheck"}', values: '_x60 1x20 0x40'}
      - {series: 'cachelab_backend_calls_total{cachelab_run="drill-1",mode="fixed",scenario="drill-no-recheck"}', values: '_x60 0x3 8x57'}
      - {series: 'cachelab_expiries_total{cachelab_run="drill-1",mode="fixed",scenario="drill-no-recheck"}', values: '_x60 0x3 1x57'}
    promql_expr_test:
`
	g := grafana{step: time.Second, run: ".*", mode: ".*"}
	file += fmt.Sprintf("      - {expr: '%s', eval_time: 200s, exp_samples: [{labels: '{cachelab_run=\"rounds-1\", mode=\"fixed\"}', value: 1}]}\n",
		g.filled(tile.Targets[1].Expr))
	path := filepath.Join(t.TempDir(), "drill.yml")
	write(t, path, file)
	if out, err := promtool(t, ".", "test", "rules", path); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The chosen time ends within a run whose gauges were stored as 0 at its start: it still goes, and has no p99 yet.
func TestARunIsNotJudgedBeforeItsEnd(t *testing.T) {
	columns := panelOf(t, "Runs")
	g := grafana{step: time.Second, run: ".*", mode: ".*"}
	file := `evaluation_interval: 1s # promtool stores no later samples than its last evaluation
tests:
  - interval: 1s
    input_series:
      - {series: 'cachelab_run_active{cachelab_run="rounds-1",mode="broken",scenario="rounds"}', values: '1 1 1 1 1 1 1 1 1 0'}
      - {series: 'cachelab_run_verdict{cachelab_run="rounds-1",mode="broken",scenario="rounds"}', values: '0 _ _ _ _ _ _ _ _ 1'}
      - {series: 'cachelab_run_latency_seconds{cachelab_run="rounds-1",mode="broken",scenario="rounds",quantile="p99"}', values: '0 _ _ _ _ _ _ _ _ 1.32'}
    promql_expr_test:
`
	for column, want := range map[string][2]string{"verdict": {"[{labels: '{cachelab_run=\"rounds-1\", mode=\"broken\"}', value: 2}]", "[{labels: '{cachelab_run=\"rounds-1\", mode=\"broken\"}', value: 1}]"},
		"p99": {"[]", "[{labels: '{cachelab_run=\"rounds-1\", mode=\"broken\"}', value: 1.32}]"}} {
		for _, q := range columns.Targets {
			if columns.column(q.RefID) == column {
				query := strings.ReplaceAll(g.filled(q.Expr), "'", "''")
				file += fmt.Sprintf("      - {expr: '%s', eval_time: 5s, exp_samples: %s}\n      - {expr: '%s', eval_time: 20s, exp_samples: %s}\n",
					query, want[0], query, want[1])
			}
		}
	}
	path := filepath.Join(t.TempDir(), "middle.yml")
	write(t, path, file)
	if out, err := promtool(t, ".", "test", "rules", path); err != nil || strings.Count(file, "expr: '") != 4 {
		t.Errorf("%v: %s", err, out)
	}
}
