package observe_test

import (
	"context"
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// Of values aged 1 s and 2.9 s nothing is beyond a TTL of 3 s, of one aged 3.25 s it is 250 ms; one of unknown age does not count.
func TestWhatIsBeyondTheTTLIsRecordedOfEachValueOfKnownAge(t *testing.T) {
	w := watch(t, backend.Config{})
	w.TTL = 3 * time.Second
	ctx, endRound := w.Observer(herd.NoObserver{}).Round(t.Context(), herd.Round{Number: 1, Workers: 4})
	now := time.Now()
	for _, answered := range []time.Time{now.Add(-time.Second), now.Add(-2900 * time.Millisecond), now.Add(-3250 * time.Millisecond), {}} {
		_, end := w.Observer(herd.NoObserver{}).Worker(ctx, herd.Worker{Round: 1, Number: 1})
		end(&herd.Response{Result: cache.Result{Outcome: cache.Hit}, At: now, Answered: answered})
	}
	endRound(herd.RoundSummary{})

	var data metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == string(telemetry.MetricValueOverdue) {
				found = true
				if p := h.DataPoints[0]; len(h.DataPoints) != 1 || p.Count != 3 || math.Abs(p.Sum-0.25) > 1e-9 {
					t.Errorf("%d values, overdue by %v s in all, want 3 and 0.25", p.Count, p.Sum)
				}
			}
		}
	}
	if !found {
		t.Error("nothing was recorded")
	}
}
