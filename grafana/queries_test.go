package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"cachelab/telemetry"
)

// A selector, or a name that only a metric can have.
var metricName = regexp.MustCompile(`\b([a-zA-Z_:][\w:]*)\{|\b((?:cachelab|db_client|go|process)_\w+)`)

func TestQueriesNameOnlyKnownMetrics(t *testing.T) {
	known := map[string]bool{"ALERTS": true, telemetry.RunLabel: true}
	for _, m := range telemetry.Metrics() {
		known[m.Stored()] = true
		if m.Kind == telemetry.Histogram {
			known[m.Stored()+"_bucket"] = true
		}
	}
	rules, err := os.ReadFile("../deploy/config/rules/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]int{}
	check := func(where, query string) {
		names := metricName.FindAllStringSubmatch(query, -1)
		if len(names) == 0 {
			t.Errorf("%s: %s names no metric", where, query)
		}
		for _, name := range names {
			queries[where]++
			if name := name[1] + name[2]; !known[name] {
				t.Errorf("%s asks for %s, which nothing reports", where, name)
			}
		}
	}
	for file, text := range stored(t) {
		walk(t, text, func(key string, value any) {
			if query, ok := value.(string); ok && (key == "expr" || key == "query") {
				check(file, query)
			}
		})
	}
	for _, expr := range regexp.MustCompile(`(?m)^        expr: (>\n(?:          .*\n)+|.*\n)`).FindAllSubmatch(rules, -1) {
		check("alerts.yml", string(expr[1]))
	}
	for _, where := range []string{herdPage + ".json", galleryPage + ".json", hoodPage + ".json", "alerts.yml"} {
		if queries[where] < 5 {
			t.Errorf("found only %d metrics in %s", queries[where], where)
		}
	}
}

// Totals never come from increase() or rate(), which extrapolate, and whose window reaches into what went before.
func TestNothingIsExtrapolated(t *testing.T) {
	for file, text := range stored(t) {
		walk(t, text, func(key string, value any) {
			if query, ok := value.(string); ok && key == "expr" && (strings.Contains(query, "increase(") || strings.Contains(query, "rate(")) {
				t.Errorf("%s: %s", file, query)
			}
		})
	}
}

// A link to a round chooses ten seconds, fixed at both ends: $__range is then just that, and Grafana ignores timeFrom,
// which moves the end of a time that is not fixed to now.
func TestNumbersLookBackAnHourFromTheEndOfTheChosenTime(t *testing.T) {
	lookBacks := 0
	for file, text := range stored(t) {
		walk(t, text, func(key string, value any) {
			query, ok := value.(string)
			if !ok || key != "expr" {
				return
			}
			if strings.Contains(strings.ReplaceAll(query, "[$__range] @ end()", ""), "$__range") {
				t.Errorf("%s looks back as far as the page does: %s", file, query)
			}
			if strings.Contains(query, "["+lookBack+"]") {
				lookBacks++
			}
		})
	}
	if lookBacks < 14 {
		t.Errorf("only %d queries look back an hour, want those of the verdict and of the runs", lookBacks)
	}
	for file, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				if expr, _ := target["expr"].(string); target["instant"] == true && strings.Contains(expr, "$__range") {
					t.Errorf("%s: %q looks back as far as the page does: %s", file, p.Title, expr)
				}
			}
			if p.TimeFrom != "" && p.Datasource.UID != "jaeger" {
				t.Errorf("%s: %q has a time of its own, %s", file, p.Title, p.TimeFrom)
			}
		}
	}
	if words := dashboards(t)[herdPage+".json"].Panels[0].Options.Content; !strings.Contains(words, "look back one hour from its end") {
		t.Errorf("the page says %q", words)
	}
}

// aggregation is what may stand before an expression's outermost "by".
var aggregation = regexp.MustCompile(`^\(*(sum|max|min) `)

var sumsByMode = regexp.MustCompile(`by \([^)]*\bmode\b`)

// A live run has two modes, so its id alone does not name a series, unless the query asks for one mode.
func TestSeriesOfTwoModesHaveTwoNames(t *testing.T) {
	checked := 0
	for file, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				expr, _ := target["expr"].(string)
				legend, _ := target["legendFormat"].(string)
				if p.Type == "table" || !sumsByMode.MatchString(expr) || strings.Contains(expr, `mode="`) {
					continue // a table shows every label
				}
				checked++
				if !strings.Contains(legend, "{{mode}}") {
					t.Errorf("%s: %q calls its series %q, and sums by mode", file, p.Title, legend)
				}
				if strings.HasPrefix(aggregation.ReplaceAllString(expr, ""), "by (cachelab_run, mode)") && !strings.Contains(legend, "{{cachelab_run}}") {
					t.Errorf("%s: %q calls its series %q, and sums by run", file, p.Title, legend)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d queries sum by mode", checked)
	}
}

var chosenRuns = regexp.MustCompile(`^(.* and on \(cachelab_run\) )?[^{]*cachelab_run_active\{mode=~"\$mode"`)

// A process's metrics know no mode: the run's own metrics say which modes it has.
func TestRuntimePanelsFindTheModeOfARun(t *testing.T) {
	found := 0
	for file, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				expr, _ := target["expr"].(string)
				if strings.Contains(expr, "$mode-") {
					t.Errorf("%s: %q takes the mode from the run's id: %s", file, p.Title, expr)
				}
				if strings.Contains(expr, "{cachelab_run=~") {
					found++
					if !chosenRuns.MatchString(expr) {
						t.Errorf("%s: %q shows runs of every mode: %s", file, p.Title, expr)
					}
				}
			}
		}
	}
	if found != 3 {
		t.Errorf("%d queries for metrics of a process, want 3", found)
	}
}
