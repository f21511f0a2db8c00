// Package page shows runs as one HTML page that needs no other file and no network. Its words and tables are HTML;
// what is drawn is there as data, a block of JSON, with the one script that draws it.
package page

import (
	"crypto/sha256"
	_ "embed" // of the three files below
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"cachelab/app/facts"
)

// Page is what is shown.
type Page struct {
	Command  string // that made it, as it can be typed
	Settings []Setting
	Runs     []Run  // in the order in which they were made; ratios are to the first
	Planned  int    // how many runs were to be made
	Error    string // why it ended early
	Links    facts.Links
	Version  string // of the program
	Made     time.Time
}

// Setting is one setting as the user knows it.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Run is one run, and how its mode is shown.
type Run struct {
	facts.Run
	Color       string // #rrggbb; the page makes it lighter or darker, as its ground needs
	About       string // a line: what the mode does
	Good, Costs string // a line each: what the mode is good for, and what it costs
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// reportJS is the script of a page with finished runs: the renderer, and the one call of it.
var reportJS = pageJS + "\ndraw(JSON.parse(document.getElementById(\"data\").textContent));\n"

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"perExpiry": facts.PerExpiry}).Parse(pageHTML))

// Write writes the page.
func Write(w io.Writer, p Page) error {
	if err := pageTemplate.Execute(w, newView(p)); err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	return nil
}

// Shown is what a page shows, as data: for whoever shows it in another way than [Write].
type Shown struct {
	Data      data            `json:"data"`     // what the renderer draws
	Gallery   bool            `json:"gallery"`  // under the same open traffic
	Compared  [][]string      `json:"compared"` // of more than one run
	Ledger    []ledgerRow     `json:"ledger"`
	Addresses []facts.Address `json:"addresses"`
}

// Renderer is the script that draws what is shown, with its function draw, and the style that belongs to it.
func Renderer() (script, style string) { return pageJS, pageCSS }

// view is the page as the template takes it.
type view struct {
	Page
	Shown
	Title      string
	CSS        template.CSS
	Script     template.JS
	ScriptHash string // for the browser: it runs this script and no other
}

func newView(p Page) view {
	hash := sha256.Sum256([]byte(reportJS))
	v := view{Page: p, Shown: p.Shown(), Title: "Cache Lab: no run", CSS: template.CSS(pageCSS),
		Script: template.JS(reportJS), ScriptHash: base64.StdEncoding.EncodeToString(hash[:])}
	if len(p.Runs) > 0 {
		var modes []string
		for _, r := range p.Runs {
			modes = append(modes, r.Mode)
		}
		v.Title = "Cache Lab: " + enumeration(modes)
	}
	return v
}

// Shown is what the page shows.
func (p Page) Shown() Shown {
	s := Shown{Data: newData(p), Ledger: ledgerRows(p.Runs)}
	var runs []facts.Run
	for _, r := range p.Runs {
		runs = append(runs, r.Run)
		s.Addresses = append(s.Addresses, p.Links.Addresses(r.Run)...)
	}
	switch s.Gallery = len(runs) > 0 && !slices.ContainsFunc(runs, func(r facts.Run) bool { return !r.Gallery() }); {
	case s.Gallery:
		s.Compared = facts.Gallery(runs)
	case len(runs) > 1:
		s.Compared = facts.Compare(runs)
	}
	return s
}

// enumeration is "a", "a and b", "a, b and c".
func enumeration(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
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
