package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/facts/factstest"
	"cachelab/app/page"
	"cachelab/telemetry"
)

const (
	orange = "#D55E00"
	green  = "#009E73"
)

func written(t *testing.T, p page.Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := page.Write(&out, p); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "ZgotmplZ") {
		t.Error("the template refused a value")
	}
	return out.String()
}

func compared() page.Page {
	return page.Page{
		Command: "cachelab compare", Planned: 2, Version: "v1", Made: factstest.Began,
		Runs: []page.Run{
			{Run: factstest.BrokenRun(), Color: orange, About: "without protection"},
			{Run: factstest.FixedRun(), Color: green, About: "with one fill lock"},
		},
		Links: facts.Links{Jaeger: "http://jaeger.example/", Grafana: "http://grafana.example"},
	}
}

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("not on the page: %s", want)
		}
	}
}

// ledger reads the table of the ledger: the values of each key.
func ledger(text string) map[string][]string {
	rows := map[string][]string{}
	for _, row := range regexp.MustCompile(`<tr data-key="([^"]+)">.*?</tr>`).FindAllStringSubmatch(text, -1) {
		for _, cell := range regexp.MustCompile(`<td>(.*?)</td>`).FindAllStringSubmatch(row[0], -1) {
			rows[row[1]] = append(rows[row[1]], html.UnescapeString(cell[1]))
		}
	}
	return rows
}

// data is what the script draws.
type data struct {
	Command  string
	Error    string
	Version  string
	Settings []page.Setting
	Runs     []struct {
		Facts     json.RawMessage
		Color     string
		Rounds    []facts.Waterfall
		Latencies []struct {
			From time.Duration `json:"from_ns"`
			N    int
		}
	}
	BinWidth time.Duration `json:"bin_ns"`
}

var dataBlock = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

func dataOf(t *testing.T, text string) (d data) {
	t.Helper()
	blocks := dataBlock.FindAllStringSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of data", len(blocks))
	}
	if err := json.Unmarshal([]byte(blocks[0][1]), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheLedgerOnThePageIsTheJSON(t *testing.T) {
	runs := []facts.Run{factstest.BrokenRun(), factstest.FixedRun()}
	rows := ledger(written(t, compared()))
	leaves := 0
	for i, run := range runs {
		text, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		var check func(key string, value any)
		check = func(key string, value any) {
			switch v := value.(type) {
			case map[string]any:
				for name, inner := range v {
					check(strings.TrimPrefix(key+"."+name, "."), inner)
				}
				return
			case []any:
				value = strings.NewReplacer("[", "", "]", "").Replace(fmt.Sprint(v))
			}
			leaves++
			if got := rows[key]; len(got) != 2 || got[i] != fmt.Sprint(value) {
				t.Errorf("%s of run %d: the page says %q, the JSON %v", key, i, got, value)
			}
		}
		check("", tree)
	}
	if leaves < 2*40 {
		t.Errorf("only %d values in the JSON", leaves)
	}
}

func TestTheDataOnThePageIsTheRuns(t *testing.T) {
	p := compared()
	d := dataOf(t, written(t, p))
	if len(d.Runs) != 2 || d.BinWidth != 20*time.Millisecond || d.Runs[0].Color != orange || d.Runs[1].Color != green {
		t.Fatalf("%d runs, bins of %v, %+v", len(d.Runs), d.BinWidth, d)
	}
	for i, run := range p.Runs {
		want, err := json.Marshal(run.Run)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Runs[i]; string(got.Facts) != string(want) {
			t.Errorf("the facts of run %d are %s, want its JSON %s", i, got.Facts, want)
		}
		requests := 0
		for _, bin := range d.Runs[i].Latencies {
			requests += bin.N
		}
		if requests != 20 {
			t.Errorf("the latencies of run %d are those of %d requests, want 20", i, requests)
		}
	}
	if first := d.Runs[1].Latencies[0]; first.From != 240*time.Millisecond || first.N != 3 { // 255, 257, 259 ms
		t.Errorf("the first bin of fixed is %+v", first)
	}
	round := d.Runs[1].Rounds[0]
	winner, waiter := round.Rows[0], round.Rows[1]
	if round.Workers != 20 || round.Calls != 1 || round.Elapsed != 295*time.Millisecond || len(round.Rows) != 20 {
		t.Errorf("the round of fixed: %+v", round)
	}
	if !winner.Winner || winner.Worker != 7 || winner.Answer != 255*time.Millisecond || len(winner.Bars) != 6 {
		t.Errorf("the winner: %+v", winner)
	}
	if want := (facts.Bar{Kind: "backend call", Start: 3 * time.Millisecond, End: 253 * time.Millisecond}); winner.Bars[3] != want {
		t.Errorf("the winner's call: %+v", winner.Bars[3])
	}
	if waiter.Worker != 1 || !slices.Equal(waiter.WaitsFor, []int{7}) || waiter.Polls != 5 {
		t.Errorf("a waiter: %+v", waiter)
	}
}

func TestThePageIsCompleteWithoutItsPictures(t *testing.T) {
	text := regexp.MustCompile(`(?s)<script.*?</script>`).ReplaceAllString(written(t, compared()), "")
	has(t, text, "<noscript>", "20 backend calls / 1 expiry = 20.0: a thundering herd", "1 backend call / 1 expiry = 1.0: one backend call per expiry cycle",
		`<th scope="row">backend calls</th><td>20</td><td>1</td><td>20.0 x</td>`,
		"The same herd on the same expired key.", `<p class="note">with one fill lock</p>`)
	if n := strings.Count(text, "data-drawn hidden"); n != 2 {
		t.Errorf("%d sections of pictures are hidden, want 2", n)
	}
	if n := len(ledger(text)); n < 40 {
		t.Errorf("%d rows in the ledger", n)
	}
}

func TestThePageNeedsNothingElse(t *testing.T) {
	text := written(t, compared())
	for _, where := range regexp.MustCompile(`(?:src|href|action)="([^"]*)"|url\(|@import`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(where[1], "data:") && !strings.HasPrefix(where[0], `href="http`) {
			t.Errorf("the page refers to %s", where[0])
		}
	}
	has(t, text, `default-src 'none'`, `<a href="http://jaeger.example/trace/4bf92f">fixed, round 1 in Jaeger</a>`,
		`<a href="http://grafana.example/d/thundering-herd?from=`)
	if strings.Contains(text, "broken, round 1 in Jaeger") {
		t.Error("a link to a run whose spans were not delivered")
	}
}

func TestThePageRunsItsOwnScriptOnly(t *testing.T) {
	text := written(t, compared())
	script := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindStringSubmatch(text)
	hash := sha256.Sum256([]byte(script[1]))
	has(t, html.UnescapeString(text), `script-src 'sha256-`+base64.StdEncoding.EncodeToString(hash[:])+`'; `)
}

// Words of the user or of a server stay words: in the HTML, and in the data.
func TestEverythingIsShownAsItIs(t *testing.T) {
	for _, nasty := range []string{
		`</script><script>alert("1")</script><b>&amp;'`, `</script><img src=x onerror=alert(1)>`, `<!--<script>`, `]]>"'\` + "`${1}\u2028\x00", `*/</style>`,
	} {
		p := compared()
		p.Command, p.Version, p.Error = nasty, nasty, nasty
		p.Settings = []page.Setting{{Name: nasty, Value: nasty, From: nasty}}
		p.Links = facts.Links{Jaeger: "javascript:alert(1)//", Grafana: "http://g/" + nasty}
		for i := range p.Runs {
			r := &p.Runs[i]
			r.ID, r.Mode, r.Redis, r.Error, r.Verdict.Text, r.About, r.Color = nasty, nasty, nasty, nasty, nasty, nasty, nasty
			r.TraceIDs = [][]string{{nasty}}
			for row := range r.Waterfall.Rows {
				r.Waterfall.Rows[row].Outcome = nasty
				r.Waterfall.Rows[row].Bars = append(r.Waterfall.Rows[row].Bars, facts.Bar{Kind: nasty, Text: nasty})
			}
		}
		var out bytes.Buffer
		if err := page.Write(&out, p); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if opened, ended := strings.Count(text, "<script"), strings.Count(text, "</script"); opened != 2 || ended != 2 {
			t.Errorf("%q: %d scripts begin and %d end, want the data and the page's own", nasty, opened, ended)
		}
		for _, markup := range []string{"<img", "<b>&", "<!--", `href="javascript:`} {
			if strings.Contains(text, markup) {
				t.Errorf("%q: there is %s", nasty, markup)
			}
		}
		if n := strings.Count(text, "</style"); n != 1 {
			t.Errorf("%q: %d styles end", nasty, n)
		}
		shown := strings.ReplaceAll(nasty, "\x00", "\uFFFD") // as HTML has it
		if n := strings.Count(html.UnescapeString(dataBlock.ReplaceAllString(text, "")), shown); n < 20 {
			t.Errorf("%q: shown %d times as it is", nasty, n)
		}
		d := dataOf(t, text)
		for what, got := range map[string]string{"command": d.Command, "error": d.Error, "version": d.Version, "setting": d.Settings[0].Value,
			"colour": d.Runs[0].Color, "outcome": d.Runs[0].Rounds[0].Rows[0].Outcome} {
			if got != nasty {
				t.Errorf("the data's %s is %q, want %q", what, got, nasty)
			}
		}
	}
}

func TestAnInterruptedRunSaysSo(t *testing.T) {
	p := compared()
	p.Error = "in round 1: context canceled"
	has(t, written(t, p), `role="alert">Ended early; this is what there is: in round 1: context canceled`)
	p.Runs = p.Runs[:1]
	has(t, written(t, p), `role="alert">Ended early, with 1 of 2 runs made: in round 1: context canceled`)
	p.Runs = nil
	text := written(t, p)
	has(t, text, `role="alert">Ended early, before the first round was over: in round 1: context canceled`, "cachelab compare", "<h1>No run</h1>")
	if strings.Contains(text, "<script") {
		t.Error("a script, although there is nothing to draw")
	}
	p.Runs, p.Error = []page.Run{{Run: facts.Run{Mode: "fixed"}, Color: green}}, "" // nothing recorded
	if d := dataOf(t, written(t, p)); d.Runs[0].Rounds == nil || len(d.Runs[0].Rounds) != 0 || d.Runs[0].Latencies == nil {
		t.Errorf("the data of nothing: %+v", d.Runs[0])
	}
}

// The page takes any number of modes, and knows none by its name.
func TestAnyNumberOfModes(t *testing.T) {
	p := compared()
	const blue = "#0072B2"
	third := p.Runs[1]
	third.Mode, third.Color, third.About, third.BackendCalls = "patient", blue, "with patience", 3
	p.Runs = append(p.Runs, third)
	text := written(t, p)
	has(t, text, "<title>Cache Lab: broken, fixed and patient</title>", `<p class="note">with patience</p>`,
		`<span class="mode" style="--mode: #0072B2">3</span> <small>backend calls</small>`,
		`<th scope="col" class="mode" style="--mode: #0072B2">patient</th>`)
	p.Runs[1].Scenario, p.Runs[2].Scenario = "rounds", "drill-slow-fill"
	has(t, written(t, p), `<h3>fixed <span class="badge ok">`, `<h3>patient, drill-slow-fill <span class="badge ok">`)
	if row := `<th scope="row">backend calls</th><td>20</td><td>1</td><td>3</td></tr>`; !strings.Contains(text, row) {
		t.Error("the three are not compared")
	}
	if got := ledger(text)["backend_calls"]; !slices.Equal(got, []string{"20", "1", "3"}) {
		t.Errorf("backend_calls of the three: %q", got)
	}
	if d := dataOf(t, text); len(d.Runs) != 3 || d.Runs[2].Color != blue {
		t.Errorf("the data of the three: %+v", d.Runs)
	}
}

// A large round, recorded as far as the recorder goes, and many rounds: the page stays small and says what it leaves out.
func TestThePageIsBounded(t *testing.T) {
	const ms = time.Millisecond
	s := factstest.Spans{Recording: telemetry.Recording{Round: 1, Workers: 10_000, Omitted: 12_345}}
	for n := range 6000 {
		from, to := time.Duration(n)*ms/10, 900*ms+time.Duration(n)*ms/7
		w := s.Worker(n+1, "filled", to)
		s.Add(s.Add(w, "MISS", from, to, nil), "backend call", from, to, map[string]any{"queued_ms": 100.0})
	}
	r := factstest.BrokenRun()
	r.Waterfall = facts.NewWaterfall(s.Recording)
	r.TraceIDs, r.Spans = nil, telemetry.SpanCounts{Ended: 1, Exported: 1}
	r.Latencies = nil
	for n := range 1_000_000 {
		r.Latencies = append(r.Latencies, time.Duration(n)*10*time.Microsecond)
	}
	for range 1000 {
		r.TraceIDs = append(r.TraceIDs, []string{strings.Repeat("a", 32)})
	}
	text := written(t, page.Page{Runs: []page.Run{{Run: r, Color: orange}, {Run: r, Color: green}}, Planned: 2})
	if len(text) > 150_000 {
		t.Errorf("%d bytes", len(text))
	}
	has(t, text, "and 990 more in the JSON")
	for _, run := range dataOf(t, text).Runs {
		round := run.Rounds[0]
		if len(round.Rows) != 60 || len(round.InFlight) > 400 || len(round.InFlight) < 200 || len(run.Latencies) > 80 || len(run.Latencies) < 30 {
			t.Errorf("%d rows, %d steps of calls in flight, %d bins", len(round.Rows), len(round.InFlight), len(run.Latencies))
		}
		most := 0
		for _, step := range round.InFlight {
			most = max(most, step.N)
		}
		if most != 6000 || round.Peak != 6000 || round.Workers != 10_000 || round.Kept != 18_000 || round.Omitted != 12_345 {
			t.Errorf("most in flight %d, peak %d, of %d workers; %d spans kept, %d not", most, round.Peak, round.Workers, round.Kept, round.Omitted)
		}
	}
}
