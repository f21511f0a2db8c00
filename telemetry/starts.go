package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// starts mends the start times of what is exported, because Prometheus makes a 0 of each, at that time
// (created-timestamp-zero-ingestion). A gauge has no start: the latency of a run never was 0. A series that is born after
// the first export, like that of a histogram in the second phase of a live run, starts at the export before, when it was not
// there yet: the SDK says the beginning of the run, where its 0 is too far off for a rate, and after some minutes too late.
type starts struct {
	sdkmetric.Exporter

	mu     sync.Mutex // guards all below
	latest time.Time  // of what was exported; zero before the first export
	born   map[seriesKey]time.Time
}

type seriesKey struct {
	metric     string
	attributes attribute.Distinct
}

// noStart is what OTLP takes for no start at all.
var noStart = time.Unix(0, 0)

func newStarts(next sdkmetric.Exporter) *starts {
	return &starts{Exporter: next, born: map[seriesKey]time.Time{}}
}

// Export implements [sdkmetric.Exporter].
func (s *starts) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	s.mend(data)
	return s.Exporter.Export(ctx, data)
}

func (s *starts) mend(data *metricdata.ResourceMetrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.latest
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			each(m.Data, func(isGauge bool, attributes attribute.Set, start *time.Time, at time.Time) {
				if at.After(newest) {
					newest = at
				}
				if isGauge {
					*start = noStart
					return
				}
				key := seriesKey{m.Name, attributes.Equivalent()}
				born, known := s.born[key]
				if !known {
					born = *start
					if s.latest.After(born) {
						born = s.latest
					}
					s.born[key] = born
				}
				*start = born
			})
		}
	}
	s.latest = newest
}

// each walks over the points of a gauge, a cumulative counter or a cumulative histogram.
func each(data metricdata.Aggregation, do func(isGauge bool, attributes attribute.Set, start *time.Time, at time.Time)) {
	switch d := data.(type) {
	case metricdata.Gauge[int64]:
		numbers(d.DataPoints, true, do)
	case metricdata.Gauge[float64]:
		numbers(d.DataPoints, true, do)
	case metricdata.Sum[int64]:
		if d.Temporality == metricdata.CumulativeTemporality {
			numbers(d.DataPoints, !d.IsMonotonic, do) // what may fall is stored as a gauge
		}
	case metricdata.Sum[float64]:
		if d.Temporality == metricdata.CumulativeTemporality {
			numbers(d.DataPoints, !d.IsMonotonic, do)
		}
	case metricdata.Histogram[float64]:
		if d.Temporality == metricdata.CumulativeTemporality {
			for i := range d.DataPoints {
				p := &d.DataPoints[i]
				do(false, p.Attributes, &p.StartTime, p.Time)
			}
		}
	}
}

func numbers[N int64 | float64](points []metricdata.DataPoint[N], isGauge bool, do func(bool, attribute.Set, *time.Time, time.Time)) {
	for i := range points {
		p := &points[i]
		do(isGauge, p.Attributes, &p.StartTime, p.Time)
	}
}
