package main

import (
	"fmt"
	"strings"

	"cachelab/telemetry"
)

// in selects the metric's series of the chosen modes and runs, and those with the labels, like `result="hit"`. Of a histogram
// they are the buckets.
func in(m telemetry.Metric, labels ...string) string {
	name := m.Stored()
	if m.Info().Kind == telemetry.Histogram {
		name += "_bucket"
	}
	chosen := []string{`mode=~"$mode"`, run + `=~"$run"`}
	if strings.HasPrefix(name, "go_") { // the runtime knows no mode: see ofMode
		chosen = []string{run + `=~"$run"`}
	}
	return name + "{" + strings.Join(append(labels, chosen...), ",") + "}"
}

// label is a matcher for a metric's attribute.
func label[K ~string](key K, value string) string { return fmt.Sprintf("%s=%q", string(key), value) }
