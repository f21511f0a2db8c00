package main

import (
	"fmt"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

const run = telemetry.RunLabel

// perRun and perMode are what sums keep apart.
const (
	perRun  = run + ", mode"
	perMode = "mode"
)

// modeAndRun names a series of one run in one mode: a live run has two. It begins with the mode, which gives the colour.
const modeAndRun = "{{mode}} {{" + run + "}}"

// lookBack is how old a run may be at the end of the chosen time to be in the numbers and tables. Not $__range: a link
// to a round chooses ten seconds.
const lookBack = "1h"

// added is how much a counter grew in each interval of a graph, exactly: no rate, nothing extrapolated. It subtracts
// per series before it sums, or an older run that leaves the graph would draw a bar below zero; a series that is
// younger than the interval began at 0, or a run's first burst would be lost when one zooms out.
func added(series, by string) string {
	value := latest(series, "")
	return fmt.Sprintf("sum by (%s) (%s - (%s or %s * 0))", by, value, latest(series, " offset $__interval"), value)
}

// latest is a series's last value of the last five minutes, which is as far as Prometheus looks back by itself, or of
// the last interval, where that is longer: a run that ended early in it would else be overlooked.
func latest(series, offset string) string {
	return fmt.Sprintf("(%[1]s%[2]s or last_over_time(%[1]s[$__interval]%[2]s))", series, offset)
}

// ofMode keeps the values of runs of the chosen modes. It is for the metrics of a process, which know no mode; that of
// a live run has two.
func ofMode(values string) string {
	return fmt.Sprintf("%s and on (%s) %s", values, run, latest(in(telemetry.MetricRunActive), ""))
}

// running is 1 for each interval of a graph in which a run was active, or had been just before it: the last push, which
// counts what was done to the very end, says that the run is over.
func running(by string) string {
	return fmt.Sprintf("max by (%[1]s) (max_over_time(%[2]s[$__interval]) > 0 or last_over_time(%[2]s[%[3]s] offset $__interval) > 0)",
		by, in(telemetry.MetricRunActive), patience)
}

// patience is for how long a run that has fallen silent is taken to go on: it was killed, or a push is late.
const patience = "5s"

// band is [running] by mode, and 0 where no run of a mode goes that has one in the chosen time.
func band() string {
	return fmt.Sprintf("%s or 0 * max by (%s) (max_over_time(%s[$__range] @ end()))", running(perMode), perMode, in(telemetry.MetricRunActive))
}

// during keeps the values that a run, or a mode, has while it is active. A value so far would else go on after the end.
func during(values, by string) string {
	return fmt.Sprintf("(%s) and on (%s) %s", values, by, running(by))
}

// inModes gives the values of a process, which know no mode, the mode in which its run is.
func inModes(values string) string {
	return fmt.Sprintf("%s * on (%s) group_left () (%s)", running(perRun), run, values)
}

// ended keeps the values of runs that are over: what is only known at the end.
func ended(values string) string {
	return fmt.Sprintf("(%s and on (%s) (%s == 0))", values, perRun, last(in(telemetry.MetricRunActive)))
}

// total is the last value of a run's counter, up to an hour ago: what the run printed. Never increase(), which
// extrapolates.
func total(series string) string {
	return fmt.Sprintf("sum by (%s) (last_over_time(%s[%s]))", perRun, series, lookBack)
}

// last is the last value of a run's gauge, up to an hour ago.
func last(series string) string {
	return fmt.Sprintf("max by (%s) (last_over_time(%s[%s]))", perRun, series, lookBack)
}

// now is a gauge over time. It bridges a push that is late; see [during].
func now(series, by string) string {
	return fmt.Sprintf("sum by (%s) (last_over_time(%s[$__rate_interval]))", by, series)
}

// most is the highest value of a gauge in each interval.
func most(series, by string) string {
	return fmt.Sprintf("max by (%s) (max_over_time(%s[$__interval]))", by, series)
}

// quantile is an estimate from the buckets of what was added in each interval; nothing where nothing was.
func quantile(q, buckets, by string) string {
	return fmt.Sprintf("histogram_quantile(%s, %s) >= 0", q, added(buckets, by+", le"))
}

// exactQuantiles are the ledger's own of each run, drawn over the run's time once it has ended.
func exactQuantiles(quantiles string) string {
	exact := fmt.Sprintf("max by (%s, quantile) (last_over_time(%s[$__range] @ end()) > 0)", perRun, in(telemetry.MetricRunLatency, `quantile=~"`+quantiles+`"`))
	return fmt.Sprintf("max by (mode, quantile) (%s)", during(exact, perRun))
}

// started is when a run pushed for the first time, in seconds since 1970: the first sample of run.active in the last
// hour. timestamp() tells the sample's own time, which only a subquery can carry over a run's end.
func started(labels ...string) string {
	return fmt.Sprintf("min by (%s) (min_over_time(timestamp(%s)[%s:1s]))", perRun, in(telemetry.MetricRunActive, labels...), lookBack)
}

// ofNewest keeps the values of the run of this mode that was started last, be it ordinary or a load: a drill breaks
// something on purpose. Chosen by its start, not by its last push, so that of two runs at once it does not show one and
// then the other.
func ofNewest(values, mode string) string {
	ordinary := fmt.Sprintf("%s=~%q", telemetry.Scenario, modes.Rounds+"|"+modes.Load)
	return fmt.Sprintf("(%s) and on (%s) topk(1, %s)", values, run, started(inMode(mode), ordinary))
}

func inMode(mode string) string { return label("mode", mode) }

// perExpiry is a run's backend calls per expiry cycle; nothing before the first cycle has ended.
func perExpiry(labels ...string) string {
	return fmt.Sprintf("%s / (%s > 0)", total(in(telemetry.MetricBackendCalls, labels...)), total(in(telemetry.MetricExpiries, labels...)))
}

// p99 is the ledger's own once the run has ended, until then an estimate.
func p99(labels ...string) string {
	return fmt.Sprintf("%s or histogram_quantile(0.99, sum by (%s, le) (last_over_time(%s[%s])))",
		ended(last(in(telemetry.MetricRunLatency, append(labels, label("quantile", "p99"))...))), perRun, in(telemetry.MetricRequestDuration, labels...), lookBack)
}

// The state of a run, as a number for the table's words.
const (
	notOK      = 0
	ok         = 1
	stillGoing = 2
	cutOff     = 3 // it never said how it ended
)

func state(labels ...string) string {
	active := in(telemetry.MetricRunActive, labels...)
	return fmt.Sprintf("%s or %d * (max by (%s) (last_over_time(%s[10s])) == 1) or %d * (%s == 1)",
		ended(last(in(telemetry.MetricRunVerdict, labels...))), stillGoing, perRun, active, cutOff, last(active))
}
