package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

// toRun says what to do first, and what to see then in each mode.
func toRun(table modes.Table) string {
	text := "**No data yet?** Run `make broken`, then `make fixed` (or `make compare`): about 20 seconds each. Each mode has its colour."
	for _, m := range table {
		text += fmt.Sprintf(" **%s:** %s.", m.Name, m.See)
	}
	return text + " Click a dot in the latency graph, or a trace in the last rows, to see that round as a waterfall. " +
		"Graphs show the time chosen above; numbers and tables look back one hour from its end."
}

// herd is the home page: it shows the herd and the fix to whoever knows nothing of them.
func herd(table modes.Table) *page {
	p := newPage(table, herdPage, "Thundering Herd", "A hot key expires: how often is the backend called, in each mode?")
	p.linkTo(galleryPage, "Gallery")
	p.linkTo(hoodPage, "Under the hood")
	p.text(4, "Start here", description("What to run, and what there is to see.", "orange red, wherever it is drawn.", "green, wherever it is drawn."), toRun(table))
	p.verdict()
	p.overTime()
	p.latency()
	p.runsAndTraces()
	return p
}

// verdict is the newest run of each mode side by side.
func (p *page) verdict() {
	p.row("The verdict: the newest run of each mode, but for drills and live")
	ofEach := func(values func(mode string) string) (queries []*prometheus.DataqueryBuilder) {
		for _, m := range p.modes {
			queries = append(queries, instant(ofNewest(values(m.Name), m.Name), "{{mode}}"))
		}
		return queries
	}
	perCycle := func(mode string) string { return perExpiry(inMode(mode)) }
	byValue := dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)
	p.panel(10, 6, "Backend calls per expiry", description("Backend calls divided by expiry cycles of each mode's newest run, as the run printed it. Green at 1, red above.",
		"the number of workers, 50 by default: all of them called.", "exactly 1, however many workers."),
		number(count, ofEach(perCycle)...).Decimals(1).Thresholds(above(1.001, green, red)).ColorScheme(byValue))

	newest := func(mode string) string { return fmt.Sprintf("max(%s)", ofNewest(perCycle(mode), mode)) }
	var saved []*prometheus.DataqueryBuilder
	for _, m := range p.modes[1:] {
		saved = append(saved, instant(fmt.Sprintf("1 - %s / %s", newest(m.Name), newest(p.modes[0].Name)), m.Name))
	}
	p.panel(4, 6, "Calls saved", description("The share of backend calls per expiry that each mode spares the first: 1 minus its own / "+p.modes[0].Name+"'s, of the newest runs.",
		"this is what its herd wastes: 98 % with 50 workers.", "the more workers, the nearer to 100 %. Needs a run of each mode."),
		number(share, saved...).Decimals(1).Thresholds(above(0.001, red, green)).ColorScheme(byValue))

	p.panel(5, 6, "Peak in flight", description("The most callers inside the backend at once, running or queued, in the newest run of each mode.",
		"the whole herd stands there: the number of workers.", "1."),
		p.inColors(number(count, ofEach(func(mode string) string {
			return fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", perRun, in(telemetry.MetricBackendPeak, inMode(mode)), lookBack)
		})...)))
	p.panel(5, 6, "Latency p99", description("The slowest hundredth of requests in the newest run of each mode: the run's own exact value, an estimate until it ends.",
		"the herd queues for the backend: a second and more.", "one fill plus a poll: about 0.3 s with a backend of 0.25 s."),
		p.inColors(number(seconds, ofEach(func(mode string) string { return p99(inMode(mode)) })...)))
}

func (p *page) overTime() {
	p.row("The herd over time: counted per interval, exact at every zoom")
	p.panel(24, 8, "Backend calls", description("Backend calls in each interval of the graph. Shaded: a run, from start to end.",
		"a wall at each expiry, as high as there are workers.", "a single call at each expiry: bars of 1, hardly to be seen beside the walls. That is the point."),
		p.bars(count, query(added(in(telemetry.MetricBackendCalls), perMode), "{{mode}}")))
	p.panel(12, 8, "In flight at peak", description("The most callers inside the backend at once in each interval, for each run.",
		"jumps to the number of workers at each expiry, then drains ten at a time.", "never above 1."),
		p.lines(count, query(most(in(telemetry.MetricBackendPeak), perRun), modeAndRun)).Decimals(0))
	p.panel(12, 8, "GET: hits and misses", description("Replies to GET in each interval; a miss is a nil reply.",
		"only misses: 50 at once, and each calls.", "more misses, as waiters poll, and then a hit for each of them. Polls are cheap, calls are not."),
		p.bars(count, query(added(in(telemetry.MetricGets), "mode, result"), "{{mode}} {{result}}")))
	p.panel(12, 8, "Lock attempts", description("Attempts to take the fill lock in each interval: acquired, or held by another.",
		"none: it knows no lock.", "one acquired at each expiry, the others find it held."),
		p.bars(count, query(added(in(telemetry.MetricLockAttempts), "mode, result"), "{{mode}} {{result}}")))
	p.panel(6, 8, "Waiters", description("Requests that waited for another's fill and got the value without a call, in each interval.",
		"none: nobody waits, all call.", "all but one of the herd, at each expiry."),
		p.bars(count, query(added(in(telemetry.MetricRequests, label(telemetry.Outcome, "waited")), perMode), "{{mode}}")))
	p.panel(6, 8, "Wait time", description("How long those waited who got the value in each interval, p50 and p99, from a histogram.",
		"nothing: nobody waits.", "about one fill, plus up to 50 ms of polling."),
		p.lines(seconds, query(quantile("0.5", in(telemetry.MetricWaitDuration), perMode), "{{mode}} p50"),
			query(quantile("0.99", in(telemetry.MetricWaitDuration), perMode), "{{mode}} p99")))
}

func (p *page) latency() {
	p.row("What a request feels")
	for _, m := range p.modes {
		p.panel(8, 9, "Latency, "+m.Name, description("Requests by how long they took, in each interval: the stronger the colour, the more requests.",
			"a smear from one fill up to a second and more: the herd queues, ten at a time.",
			"one thin band just above the backend's latency: all wait for the same fill."), heatmapOf(m))
	}
	p.panel(8, 9, "Latency p50 and p99", description("Quantiles of the latency of the requests that ended in each interval, from a histogram; dashed, once a run has ended, its exact ones. The dots apart from the lines are exemplars: each is one request, and leads to its trace.",
		"p50 and p99 far apart, both far above one fill.", "p50 and p99 close together, near one fill."),
		p.lines(seconds, query(quantile("0.5", in(telemetry.MetricRequestDuration), perMode), "{{mode}} p50").Exemplar(true),
			query(quantile("0.99", in(telemetry.MetricRequestDuration), perMode), "{{mode}} p99").Exemplar(true),
			query(exactQuantiles("p50|p99"), "{{mode}} {{quantile}} of the run")).
			OverrideByRegexp("/ of the run$/", []dashboard.DynamicConfigValue{
				{Id: "custom.showPoints", Value: common.VisibilityModeNever}, {Id: "custom.fillOpacity", Value: 0}, {Id: "custom.lineWidth", Value: 1},
				{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{6, 6}}},
			}))
}

func (p *page) runsAndTraces() {
	p.row("Runs, rounds and alerts")
	p.panel(24, 10, "Runs", description("One line for each run of the hour before the end of the chosen time, newest first; the numbers are those that the run printed, or partial ones while it goes. A click on a run shows it alone.",
		"calls per expiry is the number of workers.", "calls per expiry is 1."), runTable(p.modes))
	const what = "The latest rounds of this mode in Jaeger, no drills, loads or live ones, of the last hour, or of the chosen time where that is fixed at both ends. " +
		"There are 50 workers at most in each trace. The trace id opens the waterfall."
	for _, m := range p.modes {
		p.panel(8, 8, "Round traces, "+m.Name, description(what, "a wall of backend calls, one under each worker.",
			"one backend call; each wait for fill links to the winner."), traceTable(m))
	}
	rest := 24 - 8*uint32(len(p.modes)%3) // of the row
	p.panel(rest, 8, "Alerts that fire now", description("At the end of the chosen time. From deploy/config/rules in Prometheus, which looks every second.",
		"Herd within 5 s of a herd, until 20 s after the last; BackendSaturated while calls queue.", "none fires."),
		list(instant(`max by (alertname, severity) (`+firing+`)`, "")).Unit(count).NoValue("none fires").
			WithTransformation(organize(map[string]string{"alertname": "alert"}, []string{"Time", "Value", "Value #A"}, "alertname", "severity")).
			OverrideByName("alert", append(color(red), dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]string{"type": "color-text"}})))
	p.panel(24, 5, "Alerts over time", description("When which alert fired.", "Herd during the whole run and a little after.", "nothing, or the end of a broken run's Herd."),
		statetimeline.NewPanelBuilder().Targets(targets(query(`max by (alertname) (`+firing+`)`, "{{alertname}}"))).
			Unit(count).NoValue("none fired").ColorScheme(always(red)).
			Mappings([]dashboard.ValueMapping{words(map[string][2]string{"1": {"firing", red}})}).
			ShowValue(common.VisibilityModeNever).RowHeight(0.8).
			Legend(common.NewVizLegendOptionsBuilder().ShowLegend(false).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle).Sort(common.SortOrderNone)))
}

// firing are the alerts that fire, as Prometheus itself stores them.
const firing = `ALERTS{alertstate="firing"}`

// column is one of a table of runs.
type column struct {
	name, unit string
	width      int // px
	expr       string
}

// runTable has a line for each run of each mode.
func runTable(table modes.Table) *table.PanelBuilder {
	return runsTable(table, []column{
		{"verdict", count, 80, state()},
		{"started", clock, 80, "1000 * " + started()},
		{"workers", count, 75, last(in(telemetry.MetricWorkers))},
		{"rounds", count, 70, total(in(telemetry.MetricRounds))},
		{"backend calls", count, 110, total(in(telemetry.MetricBackendCalls))},
		{"expiries", count, 80, total(in(telemetry.MetricExpiries))},
		{"calls per expiry", count, 125, perExpiry()},
		{"p99", seconds, 80, p99()},
	})
}

// runsTable joins one instant query for each column. The columns are as wide as what they hold, so that the last one is
// still inside of 1,280 px.
func runsTable(table modes.Table, columns []column) *table.PanelBuilder {
	var queries []*prometheus.DataqueryBuilder
	names, order := map[string]string{run: "run"}, []string{run}
	for i, c := range columns {
		queries = append(queries, instant(c.expr, ""))
		field := "Value #" + letter(i)
		names[field] = c.name
		order = append(order, field)
		if c.name == "verdict" {
			order = append(order, "mode")
		}
	}
	t := list(queries...).Unit(count).
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(organize(names, []string{"Time"}, order...)).
		SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName("started").Desc(true)})
	for _, c := range columns {
		t.OverrideByName(c.name, []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}, {Id: "custom.width", Value: c.width}})
	}
	inColor := dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]string{"type": "color-text"}}
	t.OverrideByName("run", []dashboard.DynamicConfigValue{{Id: "custom.width", Value: 270}, {Id: "links", Value: []map[string]any{{
		"title": "show this run alone", "url": "/d/" + herdPage + "?${__url_time_range}&var-mode=$__all&var-run=${__value.raw}"}}}})
	colors := map[string][2]string{}
	for _, m := range table {
		colors[m.Name] = [2]string{m.Name, m.Color}
	}
	t.OverrideByName("mode", []dashboard.DynamicConfigValue{inColor, {Id: "custom.width", Value: 140},
		{Id: "mappings", Value: []dashboard.ValueMapping{words(colors)}}})
	t.OverrideByName("calls per expiry", []dashboard.DynamicConfigValue{inColor, {Id: "decimals", Value: 1},
		{Id: "color", Value: map[string]string{"mode": "thresholds"}},
		{Id: "thresholds", Value: map[string]any{"mode": "absolute", "steps": []map[string]any{{"value": nil, "color": green}, {"value": 1.001, "color": red}}}}})
	t.OverrideByName("verdict", []dashboard.DynamicConfigValue{inColor, {Id: "mappings", Value: []dashboard.ValueMapping{words(map[string][2]string{
		fmt.Sprint(notOK): {"not ok", "orange"}, fmt.Sprint(ok): {"ok", "text"}, fmt.Sprint(stillGoing): {"still going", "blue"}, fmt.Sprint(cutOff): {"cut off", "orange"}})}}})
	return t
}

// traceTable lists rounds of ordinary runs; Grafana makes the trace id of each row a link to its waterfall. A search carries whole
// traces, so a few must do.
func traceTable(mode modes.Mode) *table.PanelBuilder {
	search := jaegerQuery{Datasource: sourceOf("jaeger"), RefID: "A", QueryType: "search",
		Service: telemetry.Service, Operation: telemetry.RoundSpan(mode.Name),
		Tags: fmt.Sprintf("%s=%s", telemetry.Scenario, modes.Rounds), Limit: 6}
	return table.NewPanelBuilder().Targets([]cog.Builder[variants.Dataquery]{search}).Datasource(sourceOf("jaeger")).
		Unit(count).NoValue(nothing).TimeFrom(lookBack).HideTimeOverride(true).
		OverrideByName("Trace name", append(color(mode.Color), dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]string{"type": "color-text"}})).
		SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName("Start time").Desc(true)})
}

// organize renames, hides and orders a table's fields.
func organize(names map[string]string, hidden []string, order ...string) dashboard.DataTransformerConfig {
	exclude, index := map[string]bool{}, map[string]int{}
	for _, field := range hidden {
		exclude[field] = true
	}
	for i, field := range order {
		index[field] = i
	}
	return dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
		"renameByName": names, "excludeByName": exclude, "indexByName": index,
	}}
}

// words maps values to a text and its colour.
func words(of map[string][2]string) dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for value, w := range of {
		options[value] = dashboard.ValueMappingResult{Text: &w[0], Color: &w[1]}
	}
	return dashboard.ValueMapping{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}
}
