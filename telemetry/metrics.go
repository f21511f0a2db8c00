package telemetry

import (
	"fmt"
	"strings"
)

// Metric is the name of a metric. [Metrics] says the rest of it.
type Metric string

// The lab's metrics.
const (
	MetricGets             Metric = "cachelab.gets"
	MetricMisses           Metric = "cachelab.misses"
	MetricLockAttempts     Metric = "cachelab.lock.attempts"
	MetricLockRechecks     Metric = "cachelab.lock.rechecks"
	MetricLockReleases     Metric = "cachelab.lock.releases"
	MetricLockTimeouts     Metric = "cachelab.lock.timeouts"
	MetricPolls            Metric = "cachelab.polls"
	MetricBackendCalls     Metric = "cachelab.backend.calls"
	MetricBackendAnswers   Metric = "cachelab.backend.answers"
	MetricBackendRedundant Metric = "cachelab.backend.redundant"
	MetricBackendRepeated  Metric = "cachelab.backend.repeated"
	MetricBackendPeak      Metric = "cachelab.backend.in_flight.peak"
	MetricBackendQueued    Metric = "cachelab.backend.queued"
	MetricBackendDuration  Metric = "cachelab.backend.duration"
	MetricRequests         Metric = "cachelab.requests"
	MetricRequestDuration  Metric = "cachelab.request.duration"
	MetricWaitDuration     Metric = "cachelab.wait.duration"
	MetricValueOverdue     Metric = "cachelab.value.overdue"
	MetricRefreshes        Metric = "cachelab.refreshes"
	MetricWakes            Metric = "cachelab.wakes"
	MetricExpiries         Metric = "cachelab.expiries"
	MetricRounds           Metric = "cachelab.rounds"
	MetricRunActive        Metric = "cachelab.run.active"
	MetricRunVerdict       Metric = "cachelab.run.verdict"
	MetricRunLatency       Metric = "cachelab.run.latency"
	MetricWorkers          Metric = "cachelab.workers"
	MetricRedisCommands    Metric = "cachelab.redis.commands"
	MetricSpans            Metric = "cachelab.spans"
)

// Metrics of the Redis client's pool, reported by redisotel but for the first, and of the Go runtime, which the dashboards show
// too.
const (
	MetricPoolUseTime  Metric = "db.client.connections.use_time"
	MetricPoolUsage    Metric = "db.client.connections.usage"
	MetricPoolWaits    Metric = "db.client.connections.waits"
	MetricPoolTimeouts Metric = "db.client.connections.timeouts"

	MetricGoroutines Metric = "go.goroutine.count"
	MetricGoMemory   Metric = "go.memory.used"
	MetricGoAllocs   Metric = "go.memory.allocated"
)

// Kind is what a metric is to OpenTelemetry; Prometheus names it accordingly.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge" // a sum that may fall is stored like one
	Histogram Kind = "histogram"
)

// MetricInfo is a metric as it is reported.
type MetricInfo struct {
	Name Metric
	Unit string // as in the Unified Code for Units of Measure; {words} in braces do not count
	Kind Kind
	What string // for people; "" for those of libraries, which say it themselves
}

// Metrics is the table of all metrics: instruments, dashboards, rules, verify and tests go by it.
func Metrics() []MetricInfo {
	return []MetricInfo{
		{MetricGets, "{reply}", Counter, "replies to GET"},
		{MetricMisses, "{request}", Counter, "requests whose first GET found nothing"},
		{MetricPolls, "{poll}", Counter, "GETs of waiters"},
		{MetricLockAttempts, "{attempt}", Counter, "attempts to take the fill lock"},
		{MetricLockRechecks, "{check}", Counter, "re-checks under the lock that found the value"},
		{MetricLockReleases, "{release}", Counter, "releases of the fill lock"},
		{MetricLockTimeouts, "{waiter}", Counter, "waiters past their limit"},
		{MetricBackendCalls, "{call}", Counter, "backend calls that began"},
		{MetricBackendAnswers, "{call}", Counter, "backend calls that ended, by how"},
		{MetricBackendRedundant, "{call}", Counter, "backend calls that began while another for the same key was in flight"},
		{MetricBackendRepeated, "{call}", Counter, "backend calls, not redundant, that began when the newest answer for the key was younger than half the TTL"},
		{MetricBackendPeak, "{call}", Gauge, "most backend calls in flight in the last 2 s"},
		{MetricBackendQueued, "{call}", Gauge, "backend calls that queue for capacity"},
		{MetricBackendDuration, "s", Histogram, "time of a backend call, queueing included"},
		{MetricRequests, "{request}", Counter, "requests by how they ended"},
		{MetricRequestDuration, "s", Histogram, "time from a worker's request to its answer"},
		{MetricWaitDuration, "s", Histogram, "time that a waiter waited for the fill"},
		{MetricValueOverdue, "s", Histogram, "how much of the age of a value that was served is beyond the TTL: 0 for most"},
		{MetricRefreshes, "{refresh}", Counter, "refreshes in the background, by what became of the value"},
		{MetricWakes, "{wake}", Counter, "looks of flights that wait for a ring, by why"},
		{MetricExpiries, "{cycle}", Counter, "expiry cycles that a fill ended"},
		{MetricRounds, "{round}", Counter, "rounds that took place"},
		// Not in "1", which a share would be: Prometheus calls that a ratio.
		{MetricRunActive, "{run}", Gauge, "1 during a run, 0 at its end"},
		{MetricRunVerdict, "{run}", Gauge, "at the end: 1 if the run did what its mode promises, else 0"},
		{MetricRunLatency, "s", Gauge, "the ledger's exact quantiles of the request latency, at the end"},
		{MetricWorkers, "{worker}", Gauge, "workers of the herd"},
		{MetricRedisCommands, "{command}", Counter, "Redis commands that the workers sent"},
		{MetricSpans, "{span}", Counter, "spans by what became of them"},

		{MetricPoolUseTime, "ms", Histogram, "time of a Redis command, with the wait for a connection"},
		{MetricPoolUsage, "", Gauge, ""},
		{MetricPoolWaits, "", Counter, ""},
		{MetricPoolTimeouts, "", Counter, ""},
		{MetricGoroutines, "{goroutine}", Gauge, ""},
		{MetricGoMemory, "By", Gauge, ""},
		{MetricGoAllocs, "By", Counter, ""},
	}
}

// Info is the metric's row in the table. Whoever asks for a metric that is not there has forgotten a row.
func (m Metric) Info() MetricInfo {
	for _, info := range Metrics() {
		if info.Name == m {
			return info
		}
	}
	panic(fmt.Sprintf("the table of metrics has no %q", string(m)))
}

// Stored is the metric's name in Prometheus; that of a histogram goes on with _bucket, _count or _sum.
func (m Metric) Stored() string { return m.Info().Stored() }

// Stored is the name that Prometheus's receiver makes of it (UnderscoreEscapingWithSuffixes in deploy/config/prometheus.yml): dots
// become underscores, then come the unit in words, and what the kind asks for.
func (i MetricInfo) Stored() string {
	name := strings.ReplaceAll(string(i.Name), ".", "_")
	if suffix := i.unitSuffix(); suffix != "" && !strings.HasSuffix(name, "_"+suffix) {
		name += "_" + suffix
	}
	if i.Kind == Counter {
		name += "_total"
	}
	return name
}

// unitSuffix knows the units of the table and no other.
func (i MetricInfo) unitSuffix() string {
	switch {
	case i.Unit == "" || strings.HasPrefix(i.Unit, "{"):
		return ""
	case i.Unit == "s":
		return "seconds"
	case i.Unit == "ms":
		return "milliseconds"
	case i.Unit == "By":
		return "bytes"
	}
	panic(fmt.Sprintf("%s: how Prometheus spells the unit %q is not known here", i.Name, i.Unit))
}
