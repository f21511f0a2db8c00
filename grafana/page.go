package main

//lint:file-ignore SA1019 The SDK prefers its newer schema, which only recent releases of Grafana can read.

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/text"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

// window is what the graphs show at first: short, so that a herd is more than a line of one pixel.
const window = "now-5m"

// The pages, by uid.
const (
	herdPage    = "thundering-herd"
	galleryPage = "gallery"
	hoodPage    = "under-the-hood"
)

// classic is a dashboard in the schema that every Grafana reads.
type classic = dashboard.Dashboard

// page is a dashboard that is being put together: variables and links are the same on all.
type page struct {
	*dashboard.DashboardBuilder
	modes modes.Table
	ids   uint32 // given so far
	err   error  // the first
}

func newPage(table modes.Table, uid, title, description string) *page {
	p := &page{DashboardBuilder: dashboard.NewDashboardBuilder(title), modes: table}
	p.Uid(uid).Description(description).Tags([]string{"cachelab"}).
		Time(window, "now").Refresh("5s").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Timepicker(dashboard.NewTimePickerBuilder().RefreshIntervals([]string{"1s", "5s", "10s", "30s", "1m", "5m"})).
		Variables([]cog.Builder[dashboard.VariableModel]{
			variable("mode", fmt.Sprintf("label_values(%s, mode)", telemetry.MetricRunActive.Stored()), dashboard.VariableSortAlphabeticalAsc),
			// newest first within a mode, as the id goes on with the time
			variable("run", fmt.Sprintf(`label_values(%s{mode=~"$mode"}, %s)`, telemetry.MetricRunActive.Stored(), run), dashboard.VariableSortAlphabeticalDesc),
		})
	return p
}

func variable(name, query string, sort dashboard.VariableSort) *dashboard.QueryVariableBuilder {
	all := func(text string) dashboard.StringOrArrayOfString {
		return dashboard.StringOrArrayOfString{ArrayOfString: []string{text}}
	}
	return dashboard.NewQueryVariableBuilder(name).Label(name).Datasource(sourceOf("prometheus")).
		Query(dashboard.StringOrMap{Map: map[string]any{"query": query, "refId": "Variable" + name}}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(sort).
		Multi(true).IncludeAll(true).AllValue(".*"). // a run that began since the page looked is in All, too
		Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: all("All"), Value: all("$__all")})
}

// linkTo adds a link to the other page, which keeps the time and the chosen runs.
func (p *page) linkTo(uid, title string) {
	p.Link(dashboard.NewDashboardLinkBuilder(title).Type(dashboard.DashboardLinkTypeLink).Url("/d/" + uid).
		Icon("dashboard").KeepTime(true).IncludeVars(true))
}

// row begins a row; the panels that follow stand in it.
func (p *page) row(title string) { p.WithRow(dashboard.NewRowBuilder(title).Id(p.id())) }

// id numbers panels and rows.
func (p *page) id() uint32 {
	p.ids++
	return p.ids
}

// panel adds a panel of a width in 24ths of the page and a height in Grafana's rows of 30 pixels. The next one stands
// to its right, if there is room.
func (p *page) panel(width, height uint32, title, description string, b cog.Builder[dashboard.Panel]) {
	built, err := b.Build()
	if err != nil {
		p.fail(fmt.Errorf("panel %q: %w", title, err))
		return
	}
	built.Id, built.Title, built.Description = cog.ToPtr(p.id()), &title, &description
	built.GridPos = &dashboard.GridPos{W: width, H: height}
	if built.Datasource == nil && len(built.Targets) > 0 {
		built.Datasource = cog.ToPtr(sourceOf("prometheus"))
	}
	p.WithPanel(ready(built))
}

// text adds a panel of words, which is there with data and without.
func (p *page) text(height uint32, title, description, markdown string) {
	p.panel(24, height, title, description, text.NewPanelBuilder().Mode(text.TextModeMarkdown).Content(markdown))
}

func (p *page) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Build implements cog.Builder.
func (p *page) Build() (classic, error) {
	if p.err != nil {
		return classic{}, p.err
	}
	return p.DashboardBuilder.Build()
}

// ready is a builder of what is built already.
type ready dashboard.Panel

func (r ready) Build() (dashboard.Panel, error) { return dashboard.Panel(r), nil }
