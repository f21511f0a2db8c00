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

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"perExpiry": facts.PerExpiry}).Parse(pageHTML))

// Write writes the page.
func Write(w io.Writer, p Page) error {
	if err := pageTemplate.Execute(w, newView(p)); err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	return nil
}

// view is the page as the template takes it.
type view struct {
	Page
	Data       data
	Title      string
	Gallery    bool       // under the same open traffic
	Compared   [][]string // of more than one run
	Ledger     []ledgerRow
	Addresses  []facts.Address
	CSS        template.CSS
	Script     template.JS
	ScriptHash string // for the browser: it runs this script and no other
}

func newView(p Page) view {
	hash := sha256.Sum256([]byte(pageJS))
	v := view{Page: p, Data: newData(p), Title: "Cache Lab: no run", Ledger: ledgerRows(p.Runs), CSS: template.CSS(pageCSS),
		Script: template.JS(pageJS), ScriptHash: base64.StdEncoding.EncodeToString(hash[:])}
	var modes []string
	var runs []facts.Run
	for _, r := range p.Runs {
		modes, runs = append(modes, r.Mode), append(runs, r.Run)
		v.Addresses = append(v.Addresses, p.Links.Addresses(r.Run)...)
	}
	if len(p.Runs) > 0 {
		v.Title = "Cache Lab: " + enumeration(modes)
	}
	switch v.Gallery = len(runs) > 0 && !slices.ContainsFunc(runs, func(r facts.Run) bool { return !r.Gallery() }); {
	case v.Gallery:
		v.Compared = facts.Gallery(runs)
	case len(runs) > 1:
		v.Compared = facts.Compare(runs)
	}
	return v
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
