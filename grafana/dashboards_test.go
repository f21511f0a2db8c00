package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// model is what the tests read of a dashboard's JSON.
type model struct {
	UID    string
	Panels []panelModel
}

type panelModel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []map[string]any
	Options                  struct{ Content string }
	TimeFrom                 string
	Datasource               struct{ UID string }
	FieldConfig              struct {
		Defaults struct{ Unit, NoValue string }
	}
}

// dashboards reads the files that Grafana reads.
func dashboards(t *testing.T) map[string]model {
	t.Helper()
	all := map[string]model{}
	for name, text := range stored(t) {
		var m model
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		all[name] = m
	}
	return all
}

func stored(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("dashboards/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("dashboards/ holds %v, %v", paths, err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = text
	}
	return all
}

func TestDashboardsAreUpToDate(t *testing.T) {
	want, err := files()
	if err != nil {
		t.Fatal(err)
	}
	got := stored(t)
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("dashboards/ holds %v", names)
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s is stale: make dashboards", name)
		}
	}
	for file, page := range dashboards(t) {
		if page.UID+".json" != file {
			t.Errorf("%s has the uid %q", file, page.UID)
		}
	}
}

func TestPanelsSayWhatTheyShow(t *testing.T) {
	panels := 0
	for file, page := range dashboards(t) {
		ids := map[int]bool{}
		for _, p := range page.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: %q has the id %d, as another has", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			if p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %q stands outside of the page: %+v", file, p.Title, p.GridPos)
			}
			if p.Type == "row" {
				continue
			}
			for _, word := range []string{"**Broken:** ", "**Fixed:** "} {
				if !strings.Contains(p.Description, word) {
					t.Errorf("%s: the description of %q does not say what to see in %s", file, p.Title, word)
				}
			}
			if p.Type == "text" {
				continue
			}
			panels++
			if p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s: %q has no unit or no query", file, p.Title)
			}
			if p.FieldConfig.Defaults.NoValue == "" {
				t.Errorf(`%s: without data %q says "No data"`, file, p.Title)
			}
		}
	}
	if panels < 15 {
		t.Errorf("%d panels, want 15 at least", panels)
	}
}

// Without data the home page says what to run, with targets that are there.
func TestHomeSaysWhatToRun(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	first := dashboards(t)[herdPage+".json"].Panels[0]
	targets := regexp.MustCompile("`make (\\w+)`").FindAllStringSubmatch(first.Options.Content, -1)
	if first.Type != "text" || len(targets) < 2 {
		t.Fatalf("the first panel is %+v", first)
	}
	for _, target := range targets {
		if !strings.Contains(string(makefile), "\n"+target[1]+": ") {
			t.Errorf("there is no %s", target[0])
		}
	}
}

// No panel lies over another.
func TestPanelsDoNotOverlap(t *testing.T) {
	for file, page := range dashboards(t) {
		taken := map[[2]int]string{}
		for _, p := range page.Panels {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies over %q", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// P17: data sources have fixed uids, and the dashboards name no other.
func TestDataSourcesAreProvisioned(t *testing.T) {
	text, err := os.ReadFile("provisioning/datasources/stack.yaml")
	if err != nil {
		t.Fatal(err)
	}
	provisioned := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    uid: (\w+)\n    type: (\w+)$`).FindAllSubmatch(text, -1) {
		provisioned[string(m[1])+" "+string(m[2])] = true
	}
	used := map[string]bool{}
	for file, text := range stored(t) {
		walk(t, text, func(key string, value any) {
			if key != "datasource" {
				return
			}
			source, _ := value.(map[string]any)
			uid, _ := source["uid"].(string)
			kind, _ := source["type"].(string)
			used[uid] = true
			if !provisioned[uid+" "+kind] {
				t.Errorf("%s asks the data source %v, which is not provisioned", file, value)
			}
		})
	}
	if !used["prometheus"] || !used["jaeger"] {
		t.Errorf("the dashboards ask %v", used)
	}
}

// A selector, or a name that only a metric can have.
var metricName = regexp.MustCompile(`\b([a-zA-Z_:][\w:]*)\{|\b((?:cachelab|db_client|go|process)_\w+)`)

func TestQueriesNameOnlyKnownMetrics(t *testing.T) {
	known := map[string]bool{"ALERTS": true}
	for _, m := range catalog() {
		known[m.stored()] = true
	}
	rules, err := os.ReadFile("../deploy/rules/alerts.yml")
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
	for _, where := range []string{herdPage + ".json", hoodPage + ".json", "alerts.yml"} {
		if queries[where] < 5 {
			t.Errorf("found only %d metrics in %s", queries[where], where)
		}
	}
}

// walk calls visit for every member of every object.
func walk(t *testing.T, text []byte, visit func(key string, value any)) {
	t.Helper()
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var down func(any)
	down = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, member := range v {
				visit(key, member)
				down(member)
			}
		case []any:
			for _, member := range v {
				down(member)
			}
		}
	}
	down(root)
}

// Totals never come from increase(), which extrapolates; nor does anything else.
func TestNothingIsExtrapolatedButQuantiles(t *testing.T) {
	for file, text := range stored(t) {
		walk(t, text, func(key string, value any) {
			query, ok := value.(string)
			if !ok || key != "expr" {
				return
			}
			if strings.Contains(query, "increase(") || strings.Contains(query, "rate(") && !strings.HasPrefix(query, "histogram_quantile(") {
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
			if strings.Contains(query, "$__range") {
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
			if p.TimeFrom != "" && p.Datasource.UID != "jaeger" {
				t.Errorf("%s: %q has a time of its own, %s", file, p.Title, p.TimeFrom)
			}
		}
	}
	if words := dashboards(t)[herdPage+".json"].Panels[0].Options.Content; !strings.Contains(words, "look back one hour from its end") {
		t.Errorf("the page says %q", words)
	}
}

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
				if strings.Contains(expr, "by (instance, mode)") && !strings.Contains(legend, "{{instance}}") {
					t.Errorf("%s: %q calls its series %q, and sums by run", file, p.Title, legend)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d queries sum by mode", checked)
	}
}

// A process's metrics know no mode, and its id may begin with "live": the run's own metrics say which modes it has.
func TestRuntimePanelsFindTheModeOfARun(t *testing.T) {
	found := 0
	for file, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				expr, _ := target["expr"].(string)
				if strings.Contains(expr, "$mode-") {
					t.Errorf("%s: %q takes the mode from the run's id: %s", file, p.Title, expr)
				}
				if strings.Contains(expr, "{instance=~") {
					found++
					if !strings.Contains(expr, " and on (instance) (cachelab_run_active_ratio{mode=~\"$mode\"") {
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

// Broken is red and every other mode green, whatever the series adds to its mode.
func TestColorsFollowTheMode(t *testing.T) {
	legends := regexp.MustCompile(`\{\{\w+\}\}`)
	names := map[string]bool{}
	for _, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				if legend, _ := target["legendFormat"].(string); p.Type == "timeseries" {
					if expr, _ := target["expr"].(string); !strings.HasPrefix(legend, "{{mode}}") && (legend != "{{instance}}" || sumsByMode.MatchString(expr)) {
						t.Errorf("%q calls its series %q: the colour goes by how the name begins", p.Title, legend)
					}
					for _, word := range []string{"hit", "miss", "held", "acquired", "SET", "DEL", "GET", "SET NX PX", "lost", "used", "idle", "live-20260102-030405-abcd"} {
						rest := strings.TrimPrefix(legend, "{{mode}}")
						names[legends.ReplaceAllString(rest, word)] = true
					}
				}
			}
		}
	}
	for rest := range names {
		if got := colorOf(t, broken+rest); got != red && !strings.HasSuffix(got, "-"+red) {
			t.Errorf("%q is %s", broken+rest, got)
		}
		for _, mode := range []string{fixed, "load", "fixed-20260102-030405-abcd"} {
			if got := colorOf(t, mode+rest); got != green && !strings.HasSuffix(got, "-"+green) {
				t.Errorf("%q is %s", mode+rest, got)
			}
		}
	}
	if colorOf(t, "broken miss") == colorOf(t, "broken hit") || colorOf(t, "fixed SET") == colorOf(t, "fixed SET NX PX") {
		t.Error("two series of one mode look the same")
	}
}

func colorOf(t *testing.T, series string) string {
	t.Helper()
	name := green
	for _, o := range modeColors() {
		if regexp.MustCompile(strings.Trim(o.names, "/")).MatchString(series) {
			name = o.properties[0].Value.(map[string]string)["fixedColor"]
		}
	}
	return name
}
