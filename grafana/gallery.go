package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

// gallery is the page that compares the strategies under the same open traffic.
func gallery(table modes.Table) *page {
	p := newPage(table, galleryPage, "Gallery", "Each strategy under the same open traffic: what it spares the backend, what requests feel, and what it costs.")
	p.linkTo(herdPage, "Thundering Herd")
	p.linkTo(hoodPage, "Under the hood")
	p.text(6, "What each is good for", description("The strategies, what each is good for, and what it costs.", "orange red, wherever it is drawn.", "green, wherever it is drawn."), goodFor(table))

	p.row("The newest gallery: the run's own figures")
	const whole = "Of each strategy in the newest gallery, as the run printed it. "
	p.panel(6, 8, "Calls of the gallery", description(whole+"Backend calls in all; the traffic is the same.", "a herd at each expiry.", "one at each expiry."),
		p.inColors(number(count, p.ofGallery(func(mode string) string { return total(shown(telemetry.MetricBackendCalls, inMode(mode))) })...)))
	p.panel(6, 8, "Redundant calls of the gallery", description(whole+"Backend calls that began while another for the same key was in flight: the stampede itself.",
		"nearly all of its calls.", "0, as of each strategy with the lock."),
		p.inColors(number(count, p.ofGallery(func(mode string) string { return total(shown(telemetry.MetricBackendRedundant, inMode(mode))) })...)))
	p.panel(6, 8, "Latency p99 of the gallery", description(whole+"The slowest hundredth of requests; latency counts from when a request was due. An estimate until the strategy's turn is over.",
		"the herd's queue: seconds.", "one fill plus a poll."),
		p.inColors(number(seconds, p.ofGallery(func(mode string) string { return p99(inMode(mode), ofGallery) })...)))
	p.panel(6, 8, "Commands per request of the gallery", description(whole+"Redis commands divided by requests.", "little more than 1: most requests are a GET that hits.",
		"the polls of those who wait."),
		p.inColors(number(count, p.ofGallery(func(mode string) string { return commandsPerRequest(inMode(mode), ofGallery) })...)).Decimals(2))
	p.panel(24, 9, "Galleries", description("One line for each strategy of each gallery of the hour before the end of the chosen time, newest first: the numbers that the run printed, or partial ones while it goes.",
		"calls without number, nearly all redundant.", "no redundant call."), galleryTable(table))

	p.row("Over time, all on the same axes: counted per interval, exact at every zoom")
	bars := func(width uint32, title, what, inBroken, inFixed string, q *prometheus.DataqueryBuilder) {
		p.panel(width, 8, title, description(what, inBroken, inFixed), p.bars(count, q))
	}
	bars(24, "Calls in turn", "Backend calls of the gallery in each interval. Shaded: the turn of a strategy.", "a wall at each expiry.", "single calls.",
		query(added(shown(telemetry.MetricBackendCalls), perMode), "{{mode}}"))
	p.panel(12, 8, "Latency in turn", description("Latency p50 and p99 of the requests that ended in each interval, from a histogram; counted from when they were due.",
		"seconds at each expiry: they queue.", "one fill at each expiry, and nothing between."),
		p.lines(seconds, query(quantile("0.5", shown(telemetry.MetricRequestDuration), perMode), "{{mode}} p50"),
			query(quantile("0.99", shown(telemetry.MetricRequestDuration), perMode), "{{mode}} p99")))
	p.panel(12, 8, "In flight in turn", description("Most callers inside the backend at once in each interval.", "the whole herd.", "never above 1."),
		p.lines(count, query(most(shown(telemetry.MetricBackendPeak), perMode), "{{mode}}")).Decimals(0))
	p.panel(12, 8, "Overdue in turn", description("How much of the age of the values served is beyond the TTL, p50 and p99, from a histogram: 0.5 ms at most where it is 0.",
		"nothing: what has expired is gone.", "nothing. Only stale serves what is overdue, by as much as a fill takes."),
		p.lines(seconds, query(quantile("0.5", shown(telemetry.MetricValueOverdue), perMode), "{{mode}} p50"),
			query(quantile("0.99", shown(telemetry.MetricValueOverdue), perMode), "{{mode}} p99")))
	bars(12, "Waiting in turn", "Requests that got their value from another's fill, in each interval.", "none: nobody waits, all call.", "a herd at each expiry.",
		query(added(shown(telemetry.MetricRequests, label(telemetry.Outcome, "waited")), perMode), "{{mode}}"))
	bars(12, "Refreshes in turn", "Refreshes in the background, in each interval.", "none.", "none.",
		query(added(shown(telemetry.MetricRefreshes), perMode), "{{mode}}"))
	bars(12, "Commands in turn", "Redis commands of the workers, in each interval.", "the GETs of the traffic, and a SET for each call.", "peaks at each expiry: the polls.",
		query(added(shown(telemetry.MetricRedisCommands), perMode), "{{mode}}"))
	return p
}

// goodFor says of each strategy what it is good for and what it costs.
func goodFor(table modes.Table) string {
	text := "**No data yet?** Run `make gallery`: 20 seconds for each strategy."
	for _, m := range table {
		text += fmt.Sprintf("\n- **%s**, good for: %s. Costs: %s.", m.Name, m.Good, m.Costs)
	}
	return text
}

// ofGallery selects the runs of the gallery.
var ofGallery = label(telemetry.Scenario, string(modes.Gallery))

// shown selects a metric's series of the gallery.
func shown(m telemetry.Metric, labels ...string) string { return in(m, append(labels, ofGallery)...) }

// ofGallery asks for a value of each mode in the newest gallery.
func (p *page) ofGallery(values func(mode string) string) (queries []*prometheus.DataqueryBuilder) {
	newest := fmt.Sprintf("topk(1, max by (%s) (%s))", run, started(ofGallery))
	for _, m := range p.modes {
		queries = append(queries, instant(fmt.Sprintf("(%s) and on (%s) %s", values(m.Name), run, newest), "{{mode}}"))
	}
	return queries
}

func commandsPerRequest(labels ...string) string {
	return fmt.Sprintf("%s / (%s > 0)", total(in(telemetry.MetricRedisCommands, labels...)), total(in(telemetry.MetricRequests, labels...)))
}

// galleryTable has a line for each strategy of each gallery.
func galleryTable(table modes.Table) *table.PanelBuilder {
	waited := shown(telemetry.MetricRequests, label(telemetry.Outcome, "waited"))
	exact := func(quantile string) string {
		return ended(last(shown(telemetry.MetricRunLatency, label(telemetry.Quantile, quantile))))
	}
	return runsTable(table, []column{
		{"verdict", count, 80, state(ofGallery)},
		{"started", clock, 80, "1000 * " + started(ofGallery)},
		{"backend calls", count, 110, total(shown(telemetry.MetricBackendCalls))},
		{"redundant", count, 85, total(shown(telemetry.MetricBackendRedundant))},
		{"repeated", count, 85, total(shown(telemetry.MetricBackendRepeated))},
		{"waited", share, 65, fmt.Sprintf("%s / %s", total(waited), total(shown(telemetry.MetricRequests)))},
		{"p99", seconds, 75, exact("p99")},
		{"max", seconds, 75, exact("max")},
		{"commands/request", count, 130, commandsPerRequest(ofGallery)},
	})
}
