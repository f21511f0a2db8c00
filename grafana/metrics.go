package main

import (
	"fmt"
	"strings"

	"cachelab/telemetry"
)

// kind is what a metric is to OpenTelemetry; Prometheus names it accordingly.
type kind int

const (
	counter kind = iota
	gauge
	histogram
)

// metric is a metric as the lab reports it. A test compares unit and kind with what the lab really reports.
type metric struct {
	name string
	unit string // as in the Unified Code for Units of Measure; {words} in braces do not count
	kind kind
}

// The metrics that the dashboards show.
var (
	gets             = metric{telemetry.MetricGets, "{reply}", counter}
	misses           = metric{telemetry.MetricMisses, "{request}", counter}
	lockAttempts     = metric{telemetry.MetricLockAttempts, "{attempt}", counter}
	lockRechecks     = metric{telemetry.MetricLockRechecks, "{check}", counter}
	lockReleases     = metric{telemetry.MetricLockReleases, "{release}", counter}
	lockTimeouts     = metric{telemetry.MetricLockTimeouts, "{waiter}", counter}
	polls            = metric{telemetry.MetricPolls, "{poll}", counter}
	backendCalls     = metric{telemetry.MetricBackendCalls, "{call}", counter}
	backendAnswers   = metric{telemetry.MetricBackendAnswers, "{call}", counter}
	backendRedundant = metric{telemetry.MetricBackendRedundant, "{call}", counter}
	backendRepeated  = metric{telemetry.MetricBackendRepeated, "{call}", counter}
	backendPeak      = metric{telemetry.MetricBackendPeak, "{call}", gauge}
	backendQueued    = metric{telemetry.MetricBackendQueued, "{call}", gauge}
	backendDuration  = metric{telemetry.MetricBackendDuration, "s", histogram}
	requests         = metric{telemetry.MetricRequests, "{request}", counter}
	requestDuration  = metric{telemetry.MetricRequestDuration, "s", histogram}
	waitDuration     = metric{telemetry.MetricWaitDuration, "s", histogram}
	expiries         = metric{telemetry.MetricExpiries, "{cycle}", counter}
	rounds           = metric{telemetry.MetricRounds, "{round}", counter}
	runActive        = metric{telemetry.MetricRunActive, "1", gauge}
	runVerdict       = metric{telemetry.MetricRunVerdict, "1", gauge}
	runLatency       = metric{telemetry.MetricRunLatency, "s", gauge}
	workers          = metric{telemetry.MetricWorkers, "{worker}", gauge}
	redisCommands    = metric{telemetry.MetricRedisCommands, "{command}", counter}
	spans            = metric{telemetry.MetricSpans, "{span}", counter}

	poolUseTime  = metric{telemetry.MetricPoolUseTime, "ms", histogram}
	poolUsage    = metric{telemetry.MetricPoolUsage, "", gauge}
	poolWaits    = metric{telemetry.MetricPoolWaits, "", counter}
	poolTimeouts = metric{telemetry.MetricPoolTimeouts, "", counter}
	goroutines   = metric{telemetry.MetricGoroutines, "{goroutine}", gauge}
	goMemory     = metric{telemetry.MetricGoMemory, "By", gauge}
	goAllocs     = metric{telemetry.MetricGoAllocs, "By", counter}
)

// catalog lists them all.
func catalog() []metric {
	return []metric{
		gets, lockAttempts, lockRechecks, lockReleases, lockTimeouts, polls, misses,
		backendCalls, backendAnswers, backendRedundant, backendRepeated, backendPeak, backendQueued,
		backendDuration, requests, requestDuration, waitDuration, expiries, rounds, runActive, runVerdict, runLatency,
		workers, redisCommands, spans, poolUseTime, poolUsage, poolWaits, poolTimeouts, goroutines, goMemory, goAllocs,
	}
}

// stored is the metric's name in Prometheus, whose receiver translates it (UnderscoreEscapingWithSuffixes in
// deploy/prometheus.yml): dots become underscores, then come the unit in words, and what the kind asks for. Of a
// histogram it is the name of the buckets.
func (m metric) stored() string {
	name := strings.ReplaceAll(m.name, ".", "_")
	if suffix := unitSuffix(m); suffix != "" && !strings.HasSuffix(name, "_"+suffix) {
		name += "_" + suffix
	}
	switch m.kind {
	case counter:
		return name + "_total"
	case histogram:
		return name + "_bucket"
	}
	return name
}

// unitSuffix knows the units of the catalog and no other.
func unitSuffix(m metric) string {
	switch {
	case m.unit == "" || strings.HasPrefix(m.unit, "{"):
		return ""
	case m.unit == "1" && m.kind == gauge:
		return "ratio" // odd, but that is how it is stored
	case m.unit == "1":
		return ""
	case m.unit == "s":
		return "seconds"
	case m.unit == "ms":
		return "milliseconds"
	case m.unit == "By":
		return "bytes"
	}
	panic(fmt.Sprintf("%s: how Prometheus spells the unit %q is not known here", m.name, m.unit))
}

// in selects the metric's series of the chosen modes and runs, and those with the labels, like `result="hit"`.
func (m metric) in(labels ...string) string {
	chosen := []string{`mode=~"$mode"`, `instance=~"$run"`}
	if strings.HasPrefix(m.name, "go.") { // the runtime knows no mode: see ofMode
		chosen = []string{`instance=~"$run"`}
	}
	return m.stored() + "{" + strings.Join(append(labels, chosen...), ",") + "}"
}

// label is a matcher for a metric's attribute.
func label[K ~string](key K, value string) string { return fmt.Sprintf("%s=%q", string(key), value) }
