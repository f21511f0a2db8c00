package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

// The colours of what is good, bad, and of no mode of the table.
const (
	red   = "red"
	green = "green"
	other = "#999999"
)

// The units of panels, in Grafana's words.
const (
	count   = "none" // the whole number: 1234, not 1.23 K
	seconds = "s"
	millis  = "ms"
	share   = "percentunit"
	memory  = "bytes"
	clock   = "time:HH:mm:ss"
)

// nothing is what a panel says without data; the text panel at the top says what to run.
const nothing = "no run yet"

// sourceOf names a provisioned data source, whose uid is its type.
func sourceOf(kind string) common.DataSourceRef {
	return common.DataSourceRef{Type: &kind, Uid: &kind}
}

// query is a Prometheus query over time, instant one for the end of the chosen time. The caller's targets() gives it its letter.
func query(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(sourceOf("prometheus")).EditorMode(prometheus.QueryEditorModeCode).
		Expr(expr).LegendFormat(legend).Range()
}

func instant(expr, legend string) *prometheus.DataqueryBuilder { return query(expr, legend).Instant() }

func targets(queries ...*prometheus.DataqueryBuilder) []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range queries {
		all = append(all, q.RefId(letter(i)))
	}
	return all
}

func letter(i int) string { return string(rune('A' + i)) }

// bars show how much was counted in each interval. A bar stands before its point in time: it is what came since the
// last one.
func (p *page) bars(unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	return p.graph(unit, queries...).DrawStyle(common.GraphDrawStyleBars).FillOpacity(80).LineWidth(0).
		BarAlignment(common.BarAlignmentBefore).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}

// lines show a value over time; they join points that are a few pushes apart.
func (p *page) lines(unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	const gap = 5000.0 // ms
	return p.graph(unit, queries...).FillOpacity(10).LineWidth(2).
		ShowPoints(common.VisibilityModeAlways).PointSize(4).
		SpanNulls(common.BoolOrFloat64{Float64: cog.ToPtr(gap)})
}

// graph is a time series, behind which the time of each run is shaded.
func (p *page) graph(unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	all := append(targets(queries...), query(band(), "{{mode}} runs").RefId(bandID))
	g := timeseries.NewPanelBuilder().Targets(all).Unit(unit).Min(0).NoValue(nothing).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		ColorScheme(always(other))
	if unit == count {
		g.AxisSoftMax(1) // nothing but zeros would else draw an axis up to 100
	}
	for _, o := range modeColors(p.modes) {
		g.OverrideByRegexp(o.names, o.properties)
	}
	return g.OverrideByQuery(bandID, bandLook())
}

// bandID is the letter of the query that shades the runs.
const bandID = "Runs"

// bandLook makes of a series that is 0 or 1 a shade behind the others, from the bottom to the top. Like a bar, it
// stands before its point in time.
func bandLook() []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{
		{Id: "unit", Value: count}, {Id: "min", Value: 0}, {Id: "max", Value: 1}, {Id: "custom.axisPlacement", Value: common.AxisPlacementHidden},
		{Id: "custom.drawStyle", Value: common.GraphDrawStyleLine}, {Id: "custom.lineInterpolation", Value: common.LineInterpolationStepBefore},
		{Id: "custom.lineWidth", Value: 0}, {Id: "custom.fillOpacity", Value: 10}, {Id: "custom.showPoints", Value: common.VisibilityModeNever},
		{Id: "custom.spanNulls", Value: false}, {Id: "custom.stacking", Value: map[string]string{"mode": string(common.StackingModeNone)}},
		{Id: "custom.hideFrom", Value: map[string]bool{"legend": true, "tooltip": true, "viz": false}},
	}
}

// number shows one large value for each query, below its mode.
func number(unit string, queries ...*prometheus.DataqueryBuilder) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Targets(targets(queries...)).Unit(unit).NoValue(nothing).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeBackground).
		TextMode(common.BigValueTextModeValueAndName).Text(common.NewVizTextDisplayOptionsBuilder().TitleSize(18))
}

// inColors gives a number's values the colours of their modes.
func (p *page) inColors(n *stat.PanelBuilder) *stat.PanelBuilder {
	n.ColorScheme(always(other)).Orientation(common.VizOrientationHorizontal)
	for _, o := range modeColors(p.modes) {
		n.OverrideByRegexp(o.names, o.properties)
	}
	return n
}

// heatmapOf is a heatmap of one mode's latencies.
func heatmapOf(mode modes.Mode) *heatmap.PanelBuilder {
	buckets := added(in(telemetry.MetricRequestDuration, inMode(mode.Name)), "le")
	return heatmap.NewPanelBuilder().
		Targets(targets(query(buckets, "{{le}}").Format(prometheus.PromQueryFormatHeatmap).Exemplar(true))).
		Unit(count).NoValue(nothing).Calculate(false).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(seconds).AxisPlacement(common.AxisPlacementLeft)).
		CellValues(heatmap.NewCellValuesBuilder().Unit(count)).
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeOpacity).Fill(mode.Color).
										Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64)).
		FilterValues(heatmap.NewFilterValueRangeBuilder().Le(1e-9)). // an empty cell is no cell
		RowsFrame(heatmap.NewRowsHeatmapOptionsBuilder().Layout(common.HeatmapCellLayoutAuto)).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle)).
		CellGap(1).ShowLegend().ExemplarsColor("rgba(255,255,255,0.7)")
}

// list is a table of the instant queries' results, joined by their labels.
func list(queries ...*prometheus.DataqueryBuilder) *table.PanelBuilder {
	for _, q := range queries {
		q.Format(prometheus.PromQueryFormatTable)
	}
	return table.NewPanelBuilder().Targets(targets(queries...)).NoValue(nothing).
		CellHeight(common.TableCellHeightSm)
}

// override changes the look of the fields with these names.
type override struct {
	names      string // a regular expression in Grafana's notation
	properties []dashboard.DynamicConfigValue
}

// shades tells the series of one mode apart: the word that its name ends with makes it paler, above 0, or darker.
var shades = []struct {
	by    float64
	words string
}{
	{0.4, "hit|held|p50|SET NX PX|idle|timeouts|repeated"},
	{-0.35, "SET|lost|error|unknown"},
	{0.7, "DEL"},
}

// modeColors go by the name of a series, which begins with its mode. Later ones win.
func modeColors(table modes.Table) []override {
	var all []override
	for _, m := range table {
		all = append(all, override{"/^" + m.Name + "( |$)/", color(m.Color)})
		for _, s := range shades {
			all = append(all, override{fmt.Sprintf("/^%s .*\\b(%s)$/", m.Name, s.words), color(shaded(m.Color, s.by))})
		}
	}
	return all
}

// shaded mixes a colour, #rrggbb, with white, or with black where by is below 0.
func shaded(hex string, by float64) string {
	var rgb [3]float64
	for i := range rgb {
		part, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(fmt.Sprintf("%q is no colour like #0099FF", hex)) // a test reads the table
		}
		rgb[i] = float64(part)*(1-math.Abs(by)) + 255*max(by, 0)
	}
	return fmt.Sprintf("#%02X%02X%02X", int(rgb[0]), int(rgb[1]), int(rgb[2]))
}

func color(name string) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]string{"mode": "fixed", "fixedColor": name}}}
}

func always(name string) *dashboard.FieldColorBuilder {
	return dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(name)
}

// above are thresholds: one colour, and another from a value on.
func above(value float64, below, from string) *dashboard.ThresholdsConfigBuilder {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
		Steps([]dashboard.Threshold{{Color: below}, {Value: &value, Color: from}})
}

// description is a panel's description: what it shows, and what to see in each mode.
func description(what, inBroken, inFixed string) string {
	return strings.Join([]string{what, "**Broken:** " + inBroken, "**Fixed:** " + inFixed}, "\n\n")
}
