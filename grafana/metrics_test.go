package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"cachelab/app/backend"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/redisstore"
	"cachelab/app/report"
	"cachelab/telemetry"
)

// The rules of UnderscoreEscapingWithSuffixes; the stack's end-to-end test looks whether Prometheus agrees.
func TestMetricsAreStoredAs(t *testing.T) {
	for _, test := range []struct {
		metric
		want string
	}{
		{metric{"cachelab.backend.calls", "{call}", counter}, "cachelab_backend_calls_total"},
		{metric{"cachelab.request.duration", "s", histogram}, "cachelab_request_duration_seconds_bucket"},
		{metric{"cachelab.run.latency", "s", gauge}, "cachelab_run_latency_seconds"},
		{metric{"cachelab.run.active", "1", gauge}, "cachelab_run_active_ratio"},
		{metric{"one", "1", counter}, "one_total"},
		{metric{"cachelab.backend.in_flight.peak", "{call}", gauge}, "cachelab_backend_in_flight_peak"},
		{metric{"no.unit", "", gauge}, "no_unit"},
		{metric{"time.in.seconds", "s", gauge}, "time_in_seconds"},
		{metric{"db.client.connections.use_time", "ms", histogram}, "db_client_connections_use_time_milliseconds_bucket"},
		{metric{"go.memory.allocated", "By", counter}, "go_memory_allocated_bytes_total"},
		{metric{"go.memory.used", "By", gauge}, "go_memory_used_bytes"},
	} {
		if got := test.stored(); got != test.want {
			t.Errorf("%s in %q is stored as %s, want %s", test.name, test.unit, got, test.want)
		}
	}
}

// The catalog has every metric of names.go, and none that is not there.
func TestCatalogIsNamesGo(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../telemetry/names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Metric") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names[value] = true
		}
		return true
	})
	if len(names) < 20 {
		t.Fatalf("names.go has only %v", names)
	}
	for _, m := range catalog() {
		if !names[m.name] {
			t.Errorf("%s is not in names.go, or twice in the catalog", m.name)
		}
		delete(names, m.name)
	}
	for name := range names {
		t.Errorf("%s is not in the catalog", name)
	}
}

// Units and kinds are those of a real run.
func TestCatalogIsWhatARunReports(t *testing.T) {
	target, err := redisstore.ParseTarget("embedded")
	if err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	l, err := lab.Open(t.Context(), lab.Config{
		Workers: 3, Rounds: 1, Key: "key", TTL: time.Second, LockTTL: time.Second, WaitTimeout: 5 * time.Second,
		Redis: target, Quiet: true, Backend: backend.Config{Latency: 20 * time.Millisecond},
		Telemetry: telemetry.Off, LookupEnv: os.LookupEnv, Console: io.Discard, Reader: kept{reader},
	}, report.PlainTerminal(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fixed, err := modes.All().Find("fixed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Run(t.Context(), lab.Plan{Mode: fixed}); err != nil {
		t.Fatal(err)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	reported := map[string]metric{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			reported[m.Name] = metric{m.Name, m.Unit, kindOf(m.Data)}
		}
	}
	for _, m := range catalog() {
		if reported[m.name] != m {
			t.Errorf("the run reports %+v, the catalog says %+v", reported[m.name], m)
		}
	}
}

// kept can still be read when the run has shut its provider down.
type kept struct{ *sdkmetric.ManualReader }

func (kept) Shutdown(context.Context) error { return nil }

func kindOf(data metricdata.Aggregation) kind {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			return counter
		}
	case metricdata.Sum[float64]:
		if d.IsMonotonic {
			return counter
		}
	case metricdata.Histogram[int64], metricdata.Histogram[float64]:
		return histogram
	}
	return gauge // a sum that may fall is stored like one
}
