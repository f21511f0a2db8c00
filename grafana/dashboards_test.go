package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/table"

	"cachelab/app/modes"
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
	want, err := files(modes.All())
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

// Every graph shades the runs by a series of its own, which has no line, no axis and no name, and stacks on nothing. An
// annotation would be a region only as long as the page shows less than 100 seconds.
func TestEveryGraphShadesTheRuns(t *testing.T) {
	want := map[string]any{
		"custom.drawStyle": "line", "custom.lineInterpolation": "stepBefore", "custom.lineWidth": 0.0, "custom.fillOpacity": 10.0,
		"custom.axisPlacement": "hidden", "min": 0.0, "max": 1.0,
	}
	graphs := 0
	for file, text := range stored(t) {
		var page struct {
			Panels []struct {
				Type, Title string
				Targets     []struct{ RefID, Expr string }
				FieldConfig struct {
					Overrides []struct {
						Matcher    struct{ ID, Options string }
						Properties []struct {
							ID    string
							Value any
						}
					}
				}
			}
		}
		if err := json.Unmarshal(text, &page); err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Panels {
			if p.Type != "timeseries" {
				continue
			}
			graphs++
			if last := p.Targets[len(p.Targets)-1]; last.RefID != bandID || last.Expr != band() {
				t.Errorf("%s: %q shades no run: its last query is %+v", file, p.Title, last)
			}
			look := map[string]any{}
			for _, o := range p.FieldConfig.Overrides {
				if o.Matcher.ID == "byFrameRefID" && o.Matcher.Options == bandID {
					for _, property := range o.Properties {
						look[property.ID] = property.Value
					}
				}
			}
			for property, value := range want {
				if look[property] != value {
					t.Errorf("%s: %q: the shade's %s is %v, want %v", file, p.Title, property, look[property], value)
				}
			}
		}
		if strings.Contains(string(text), `"iconColor": "red"`) {
			t.Errorf("%s marks runs by an annotation", file)
		}
	}
	if graphs < 15 {
		t.Errorf("found only %d graphs", graphs)
	}
}

// The verdict is beside the run, and no column is outside of a page of 1,280 px with its menu.
func TestTheRunsFitThePage(t *testing.T) {
	t.Run("runs", func(t *testing.T) { fitsThePage(t, runTable(modes.All()), 10) })
	t.Run("galleries", func(t *testing.T) { fitsThePage(t, galleryTable(modes.All()), 11) })
}

func fitsThePage(t *testing.T, of *table.PanelBuilder, columns int) {
	built, err := of.Build()
	if err != nil {
		t.Fatal(err)
	}
	index := built.Transformations[1].Options.(map[string]any)["indexByName"].(map[string]int)
	names := built.Transformations[1].Options.(map[string]any)["renameByName"].(map[string]string)
	sum, units := 0, map[string]any{}
	for field, at := range index {
		name := cmp.Or(names[field], field)
		if (name == "verdict") != (at == 1) {
			t.Errorf("the column %d is %s", at, name)
		}
		width := 0
		for _, o := range built.FieldConfig.Overrides {
			if of, ok := o.Matcher.Options.(*string); !ok || *of != name {
				continue
			}
			for _, property := range o.Properties {
				switch property.Id {
				case "custom.width":
					width = property.Value.(int)
				case "unit":
					units[name] = property.Value
				}
			}
		}
		if width == 0 {
			t.Errorf("%s has no width", name)
		}
		sum += width
	}
	if len(index) != columns || sum > 1200 {
		t.Errorf("%d columns of %d px, want %d of 1200 at most", len(index), sum, columns)
	}
	if units["started"] != "time:HH:mm:ss" {
		t.Errorf("started is shown as %v, want the time without the date", units["started"])
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
		overlaps(t, file, page)
	}
}

func overlaps(t *testing.T, file string, page model) {
	t.Helper()
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

// Data sources have fixed uids, and the dashboards name no other.
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

// A series has its mode's colour or a shade of it, whatever its name adds to its mode.
func TestColorsFollowTheMode(t *testing.T) {
	table := modes.All()
	legends := regexp.MustCompile(`\{\{\w+\}\}`)
	names := map[string]bool{}
	for _, page := range dashboards(t) {
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				if legend, _ := target["legendFormat"].(string); p.Type == "timeseries" {
					if expr, _ := target["expr"].(string); !strings.HasPrefix(legend, "{{mode}}") && (legend != "{{cachelab_run}}" && legend != "{{node}}" || sumsByMode.MatchString(expr)) {
						t.Errorf("%q calls its series %q: the colour goes by how the name begins", p.Title, legend)
					}
					for _, word := range []string{"hit", "miss", "held", "acquired", "SET", "DEL", "GET", "SET NX PX", "lost", "used", "idle", "live-20260102-030405-abcd"} {
						if rest, ok := strings.CutPrefix(legend, "{{mode}}"); ok {
							names[legends.ReplaceAllString(rest, word)] = true
						}
					}
				}
			}
		}
	}
	of := map[string]string{"another": ""}
	for _, m := range table {
		of[m.Name] = m.Color
	}
	for rest := range names {
		for mode, want := range of {
			got := colorOf(t, table, mode+rest)
			shade := got == want
			for _, s := range shades {
				shade = shade || want != "" && got == shaded(want, s.by)
			}
			if !shade {
				t.Errorf("%q is %s, which is no shade of %s", mode+rest, got, want)
			}
		}
	}
	if colorOf(t, table, "broken miss") == colorOf(t, table, "broken hit") || colorOf(t, table, "fixed SET") == colorOf(t, table, "fixed SET NX PX") {
		t.Error("two series of one mode look the same")
	}
	for by, want := range map[float64]string{0: "#D55E00", 0.4: "#E59E66", -0.35: "#8A3D00"} {
		if got := shaded("#D55E00", by); got != want {
			t.Errorf("#D55E00 shaded by %v is %s, want %s", by, got, want)
		}
	}
}

func colorOf(t *testing.T, table modes.Table, series string) string {
	t.Helper()
	name := ""
	for _, o := range modeColors(table) {
		if regexp.MustCompile(strings.Trim(o.names, "/")).MatchString(series) {
			name = o.properties[0].Value.(map[string]string)["fixedColor"]
		}
	}
	return name
}
