package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// Page is what the HTML report shows.
type Page struct {
	Command  string // that made it, as it can be typed
	Settings []Setting
	Runs     []Run  // in the order in which they were made
	Planned  int    // how many runs were to be made
	Error    string // why it ended early
	Links    Links
	Version  string // of the program
	Made     time.Time
}

// Setting is one setting as the user knows it.
type Setting struct{ Name, Value, From string }

//go:embed page.html page.css page.js
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"ms":    durationText,
	"count": count,
	"file": func(name string) (string, error) {
		text, err := pageFiles.ReadFile(name)
		return string(text), err
	},
	"css": func(text string) template.CSS { return template.CSS(text) },
	"js":  func(text string) template.JS { return template.JS(text) },
}).ParseFS(pageFiles, "page.html"))

// WriteHTML writes the report: one page that needs no other file and no network.
func WriteHTML(w io.Writer, p Page) error {
	if err := pageTemplate.Execute(w, newPageView(p)); err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	return nil
}

// pageView is the page as the template takes it.
type pageView struct {
	Page
	Title     string
	Shown     []runView
	Ratios    [][]string // of two runs
	Bins      binning
	Ledger    []ledgerRow
	Addresses []address
}

// runView is one run on the page.
type runView struct {
	Run
	Class     string // of colour: broken or fixed
	Waterfall *waterfallView
	Latencies histogram
}

// address is a link to a page of the stack.
type address struct{ Text, URL string }

func newPageView(p Page) pageView {
	v := pageView{Page: p, Title: "Cache Lab: no run", Ledger: ledgerRows(p.Runs), Bins: newBinning(p.Runs)}
	s := scaleOf(p.Runs)
	var modes []string
	for _, r := range p.Runs {
		modes = append(modes, r.Mode)
		one := runView{Run: r, Class: "fixed", Latencies: v.Bins.of(r)}
		if r.Mode == "broken" {
			one.Class = "broken"
		}
		if len(r.Round.Rows) > 0 {
			one.Waterfall = newWaterfallView(r.Round, s)
		}
		v.Shown = append(v.Shown, one)
		v.Addresses = append(v.Addresses, addresses(r, p.Links)...)
	}
	if len(p.Runs) > 0 {
		v.Title = "Cache Lab: " + strings.Join(modes, " and ")
	}
	if len(p.Runs) == 2 {
		v.Ratios = compareRows(p.Runs)
	}
	return v
}

// addresses are the pages that show a run whose spans were delivered.
func addresses(r Run, links Links) (all []address) {
	if r.Spans.Exported == 0 {
		return nil
	}
	for i, ids := range r.TraceIDs {
		if i == maxLinks {
			break
		}
		all = append(all, address{fmt.Sprintf("%s, round %d in Jaeger", r.Mode, i+1), links.trace(ids[0])})
	}
	return append(all, address{r.Mode + " in Grafana", links.dashboard(r)})
}

// Interrupted says how far it came, if that was not to the end.
func (p Page) Interrupted() string {
	switch {
	case p.Error == "":
		return ""
	case len(p.Runs) == 0:
		return fmt.Sprintf("Ended early, before the first round was over: %s", p.Error)
	case len(p.Runs) < p.Planned:
		return fmt.Sprintf("Ended early, with %d of %d runs made: %s", len(p.Runs), p.Planned, p.Error)
	}
	return fmt.Sprintf("Ended early; this is what there is: %s", p.Error)
}
