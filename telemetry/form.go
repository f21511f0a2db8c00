package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// form is how metrics are added up before they are sent: as the variables say, or as the lab's Prometheus needs it.
type form struct {
	fixed  bool   // cumulative sums and explicit buckets, whatever the variables say
	notice string // if a variable asks for another form
}

// forms are the values of the variables that choose it. The first is the specification's default, and what the dashboards and
// verify need.
var forms = map[string][]string{
	"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE":        {"cumulative", "delta", "lowmemory"},
	"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": {"explicit_bucket_histogram", "base2_exponential_bucket_histogram"},
}

// formOf says in which form metrics go to e. The lab's own Prometheus refuses delta sums, and the dashboards' queries
// find no exponential buckets, so towards it the variables are left aside; towards another receiver they hold. An
// unknown value, which the SDK would ignore, is an error.
func formOf(env lookup, e endpoint) (form, error) {
	var others []string
	for _, variable := range slices.Sorted(maps.Keys(forms)) {
		values := forms[variable]
		value := strings.ToLower(strings.TrimSpace(env.get(variable)))
		if value != "" && !slices.Contains(values, value) {
			return form{}, fmt.Errorf("%s=%q: want %s", variable, value, strings.Join(values, " or "))
		}
		if value != "" && value != values[0] {
			others = append(others, variable+"="+value)
		}
	}
	own := isOwnPrometheus(env, e)
	if len(others) == 0 {
		return form{fixed: own}, nil
	}
	const needs = "the dashboards and verify need cumulative sums and explicit buckets"
	said := strings.Join(others, ", ")
	if own {
		return form{fixed: true, notice: fmt.Sprintf("telemetry: %s left aside for the lab's Prometheus: %s", said, needs)}, nil
	}
	return form{notice: fmt.Sprintf("telemetry: metrics go to %s as %s says; %s", e, said, needs)}, nil
}

// isOwnPrometheus reports whether metrics go to the Prometheus that verify reads: the default one, or the one that make
// hands over while the stack is up.
func isOwnPrometheus(env lookup, e endpoint) bool {
	base := env.get("CACHELAB_PROMETHEUS_URL")
	if base == "" {
		base = ownPrometheus
	}
	numeric := func(url string) string { return strings.Replace(url, "//localhost:", "//127.0.0.1:", 1) }
	return !e.overGRPC && numeric(e.url) == numeric(strings.TrimSuffix(base, "/")+prometheusPath)
}
