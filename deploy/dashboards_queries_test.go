//go:build e2e

package deploy

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dashboard is what the tests read of a dashboard's JSON.
type dashboard struct {
	UID        string
	Panels     []panel
	Templating struct{ List []variable }
}

type panel struct {
	Type, Title     string
	Targets         []target
	Transformations []struct {
		ID      string
		Options struct{ RenameByName map[string]string }
	}
}

type target struct {
	RefID                         string
	Datasource                    struct{ UID string }
	Expr                          string
	Instant, Exemplar             bool
	QueryType, Service, Operation string
	Tags                          string
	Limit                         int
}

type variable struct {
	Name  string
	Query struct{ Query string }
}

func dashboards(t *testing.T) []dashboard {
	t.Helper()
	paths, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil || len(paths) < 2 {
		t.Fatalf("dashboards %v, %v", paths, err)
	}
	var all []dashboard
	for _, path := range paths {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// panelOf finds a panel by its title.
func panelOf(t *testing.T, title string) panel {
	t.Helper()
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			if p.Title == title {
				return p
			}
		}
	}
	t.Fatalf("no panel is called %q", title)
	return panel{}
}

// grafana is what Grafana knows when it asks: the chosen time and runs.
type grafana struct {
	*servers
	from, to time.Time
	step     time.Duration
	run      string // a regular expression, as mode is
	mode     string
}

// look is a page that shows the last five minutes, with a point for each second, of all runs.
func look(s *servers) grafana {
	now := time.Now()
	return grafana{servers: s, from: now.Add(-5 * time.Minute), to: now, step: time.Second, run: ".*", mode: ".*"}
}

// filled is a query with its variables replaced as Grafana does it, for a push interval of 1 s.
func (g grafana) filled(query string) string {
	text := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + "s" }
	return strings.NewReplacer(
		"$__rate_interval", text(max(g.step+time.Second, 4*time.Second)),
		"$__range", text(g.to.Sub(g.from)),
		"$__interval", text(g.step),
		"$mode", g.mode,
		"$run", g.run,
	).Replace(query)
}

// point is a value at a time, as Prometheus writes it: [1435781430.781, "1"].
type point struct {
	at    time.Time
	value float64
}

func (p *point) UnmarshalJSON(text []byte) error {
	var at float64
	var value string
	if err := json.Unmarshal(text, &[]any{&at, &value}); err != nil {
		return err
	}
	p.at = time.UnixMilli(int64(math.Round(at * 1000)))
	var err error
	p.value, err = strconv.ParseFloat(value, 64)
	return err
}

// series is one line, or one value, of a result.
type series struct {
	Metric map[string]string
	Value  point
	Values []point
}

func (s series) points() []point {
	if s.Values == nil {
		return []point{s.Value}
	}
	return s.Values
}

// ask runs a panel's query as Grafana would.
func (g grafana) ask(t *testing.T, query string, instant bool) []series {
	t.Helper()
	type result struct{ Result []series }
	parameters := url.Values{"query": {g.filled(query)}}
	if instant {
		parameters.Set("time", seconds(g.to))
		return ask[result](t, g.prometheus+"/api/v1/query", parameters).Result
	}
	parameters.Set("start", seconds(g.from))
	parameters.Set("end", seconds(g.to))
	parameters.Set("step", seconds(time.UnixMilli(g.step.Milliseconds())))
	return ask[result](t, g.prometheus+"/api/v1/query_range", parameters).Result
}

func seconds(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }

// numbers are the values of a result that are numbers: a quantile of nothing is none.
func numbers(result []series) []float64 {
	var all []float64
	for _, s := range result {
		for _, p := range s.points() {
			if !math.IsNaN(p.value) {
				all = append(all, p.value)
			}
		}
	}
	return all
}

// exemplars asks for those behind a panel's query, and returns their trace ids.
func (g grafana) exemplars(t *testing.T, query string) []string {
	t.Helper()
	var ids []string
	for _, s := range ask[[]struct {
		Exemplars []struct{ Labels map[string]string }
	}](t, g.prometheus+"/api/v1/query_exemplars", url.Values{
		"query": {g.filled(query)}, "start": {seconds(g.from)}, "end": {seconds(g.to)},
	}) {
		for _, e := range s.Exemplars {
			ids = append(ids, e.Labels["trace_id"])
		}
	}
	return ids
}

type jaegerTrace struct {
	TraceID string
	Spans   []struct{ OperationName string }
}

// search asks Jaeger as Grafana's data source does for a table of traces.
func (g grafana) search(t *testing.T, q target) []jaegerTrace {
	t.Helper()
	micros := func(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 10) }
	key, value, _ := strings.Cut(q.Tags, "=")
	tags, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		t.Fatal(err)
	}
	return ask[[]jaegerTrace](t, g.jaeger+"/api/traces", url.Values{
		"tags":    {string(tags)},
		"service": {q.Service}, "operation": {q.Operation}, "limit": {strconv.Itoa(q.Limit)},
		"start": {micros(g.from)}, "end": {micros(g.to)}, "lookback": {"custom"},
	})
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// values asks for what a variable offers.
func (g grafana) values(t *testing.T, v variable) []string {
	t.Helper()
	m := labelValues.FindStringSubmatch(v.Query.Query)
	if m == nil {
		t.Fatalf("the variable %s asks %q", v.Name, v.Query.Query)
	}
	return ask[[]string](t, g.prometheus+"/api/v1/label/"+m[2]+"/values", url.Values{
		"match[]": {g.filled(m[1])}, "start": {seconds(g.from)}, "end": {seconds(g.to)},
	})
}

// column is the name of a query's column in the panel's table.
func (p panel) column(query string) string {
	for _, transformation := range p.Transformations {
		if transformation.ID == "organize" {
			return transformation.Options.RenameByName["Value #"+query]
		}
	}
	return ""
}

// table is what the panel's table shows: for each run, its columns' values.
func (g grafana) table(t *testing.T, p panel) map[string]map[string]float64 {
	t.Helper()
	rows := map[string]map[string]float64{}
	for _, q := range p.Targets {
		column := p.column(q.RefID)
		if column == "" {
			t.Errorf("%s: the query %s has no column", p.Title, q.RefID)
		}
		for _, s := range g.ask(t, q.Expr, q.Instant) {
			run := s.Metric["cachelab_run"]
			if rows[run] == nil {
				rows[run] = map[string]float64{}
			}
			rows[run][column] = s.Value.value
		}
	}
	return rows
}
