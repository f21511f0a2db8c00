package verify

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"cachelab/telemetry"
)

// metrics are the last samples of a run's series, as Prometheus stores them.
type metrics []sample

type sample struct {
	labels map[string]string
	value  float64
}

// prometheusAnswer is the answer of Prometheus's query API to an instant query.
type prometheusAnswer struct {
	Data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any // time, value as text
		}
	}
}

// readMetrics reads the last sample of each of the run's series. last_over_time, because a series that is not pushed
// any more is stale after five minutes; never increase(), which extrapolates.
func readMetrics(ctx context.Context, base, run, mode string, age time.Duration) (metrics, error) {
	query := fmt.Sprintf(`last_over_time({__name__=~"cachelab_.+",%s=%q,mode=%q}[%ds])`, telemetry.RunLabel, run, mode, int(age.Seconds())+60)
	var answer prometheusAnswer
	if err := getJSON(ctx, strings.TrimSuffix(base, "/")+"/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return nil, fmt.Errorf("read metrics from Prometheus: %w; is the stack up (make up)?", err)
	}
	var all metrics
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics from Prometheus: %s is %q", r.Metric["__name__"], text)
		}
		all = append(all, sample{r.Metric, value})
	}
	return all, nil
}

// total adds the samples that are stored under a name and have these attributes. No sample at all is no number.
func (m metrics) total(stored string, with []attribute.KeyValue) (sum float64, found bool) {
	for _, s := range m {
		if s.labels["__name__"] != stored {
			continue
		}
		fits := true
		for _, a := range with {
			fits = fits && s.labels[string(a.Key)] == a.Value.String()
		}
		if fits {
			sum += s.value
			found = true
		}
	}
	return sum, found
}

// sum is the total of a counter, or the value of a gauge; -1 if there is no sample.
func (m metrics) sum(of telemetry.Metric, with ...attribute.KeyValue) *int {
	v, found := m.total(of.Stored(), with)
	if !found {
		v = -1
	}
	return whole(v)
}

// count is how many values a histogram holds. One that was never used has no series: 0.
func (m metrics) count(of telemetry.Metric) *int {
	v, _ := m.total(of.Stored()+"_count", nil)
	return whole(v)
}

// micros is a gauge in seconds, in microseconds; -1 if there is no sample.
func (m metrics) micros(of telemetry.Metric, with ...attribute.KeyValue) *int {
	v, found := m.total(of.Stored(), with)
	if !found {
		return whole(-1)
	}
	return whole(math.Trunc(v*1e6 + 1e-6))
}

func (m metrics) command(name string) *int {
	return m.sum(telemetry.MetricRedisCommands, telemetry.Command.String(name))
}

func whole(v float64) *int {
	n := int(math.Round(v))
	return &n
}
