package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"cachelab/app/report"
	"cachelab/telemetry"
)

func page(t *testing.T, p report.Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.WriteHTML(&out, p); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "ZgotmplZ") {
		t.Error("the template refused a value")
	}
	return out.String()
}

func compared() report.Page {
	return report.Page{Command: "cachelab compare", Runs: []report.Run{brokenRun(), fixedRun()}, Planned: 2, Version: "v1", Made: began,
		Links: report.Links{Jaeger: "http://jaeger.example/", Grafana: "http://grafana.example"}}
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

func TestTheLedgerOnThePageIsTheJSON(t *testing.T) {
	runs := []report.Run{brokenRun(), fixedRun()}
	rows := ledger(page(t, compared()))
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

func TestThePageTiesWaitersToTheirWinner(t *testing.T) {
	text := page(t, compared())
	rows := regexp.MustCompile(`<g class="row( winner)?" role="listitem" tabindex="(0|-1)" data-worker="(\d+)" data-waits="([\d ]*)" aria-label="([^"]+)">`).FindAllStringSubmatch(text, -1)
	if len(rows) != 40 {
		t.Fatalf("%d rows, want 40", len(rows))
	}
	has(t, text,
		`aria-label="worker 7: won the fill lock and filled, backend call of 250.0 ms; answered after 255.0 ms"`,
		`aria-label="worker 1: waited for worker 7, 5 polls; answered after 257.0 ms"`,
		`aria-label="worker 20: waited for a worker that is not recorded, 5 polls; answered after 295.0 ms"`,
		`aria-label="worker 20: filled, backend call of 1.02 s, 750.0 ms of it in the queue; answered after 1.02 s"`)
	winners, tied, stops := 0, 0, 0
	for _, row := range rows {
		if row[1] != "" {
			winners++
		}
		if row[4] == "7 " {
			tied++
		}
		if row[2] == "0" {
			stops++
		}
	}
	if winners != 1 || tied != 18 || stops != 2 || strings.Count(text, `class="tie"`) != 18 {
		t.Errorf("%d winners, %d waiters tied to it by %d lines, %d tab stops; want 1, 18, 18, 2", winners, tied, strings.Count(text, `class="tie"`), stops)
	}
}

func TestThePageNeedsNothingElse(t *testing.T) {
	text := page(t, compared())
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

func TestEverythingIsShownAsItIs(t *testing.T) {
	const nasty = `</script><script>alert("1")</script><b>&amp;'`
	p := compared()
	p.Command, p.Version, p.Error = nasty, nasty, nasty
	p.Settings = []report.Setting{{Name: nasty, Value: nasty, From: nasty}}
	p.Links = report.Links{Jaeger: "javascript:alert(1)//", Grafana: "http://g/" + nasty}
	for i := range p.Runs {
		r := &p.Runs[i]
		r.ID, r.Mode, r.Redis, r.Error, r.Verdict.Text = nasty, nasty, nasty, nasty, nasty
		r.TraceIDs = [][]string{{nasty}}
		for row := range r.Round.Rows {
			r.Round.Rows[row].Outcome = nasty
			r.Round.Rows[row].Bars = append(r.Round.Rows[row].Bars, report.Bar{Kind: "backend call", Text: nasty})
		}
	}
	var out bytes.Buffer
	if err := report.WriteHTML(&out, p); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, "<script>"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	if strings.Contains(text, "<b>&") || strings.Contains(text, `href="javascript:`) {
		t.Error("something is not escaped")
	}
	if n := strings.Count(html.UnescapeString(text), nasty); n < 20 {
		t.Errorf("shown %d times as it is", n)
	}
}

func TestAnInterruptedRunSaysSo(t *testing.T) {
	p := compared()
	p.Error = "in round 1: context canceled"
	has(t, page(t, p), `role="alert">Ended early; this is what there is: in round 1: context canceled`)
	p.Runs = p.Runs[:1]
	has(t, page(t, p), `role="alert">Ended early, with 1 of 2 runs made: in round 1: context canceled`)
	p.Runs = nil
	has(t, page(t, p), `role="alert">Ended early, before the first round was over: in round 1: context canceled`, "cachelab compare")
	p.Runs, p.Error = []report.Run{{Mode: "fixed"}}, "" // nothing recorded
	has(t, page(t, p), "No round was recorded.")
}

// A large round, recorded as far as the recorder goes, and many rounds: the page stays small and says what it leaves out.
func TestThePageIsBounded(t *testing.T) {
	s := spans{telemetry.Recording{Round: 1, Workers: 10_000, Omitted: 12_345}}
	for n := range 6000 {
		from, to := time.Duration(n)*ms/10, 900*ms+time.Duration(n)*ms/7
		w := s.worker(n+1, "filled", to)
		s.add(s.add(w, "MISS", from, to, nil), "backend call", from, to, map[string]any{"queued_ms": 100.0})
	}
	r := brokenRun()
	r.Round = report.NewRound(s.Recording)
	r.TraceIDs, r.Spans = nil, telemetry.SpanCounts{Ended: 1, Exported: 1}
	r.Latencies = nil
	for n := range 1_000_000 {
		r.Latencies = append(r.Latencies, time.Duration(n)*10*time.Microsecond)
	}
	for range 1000 {
		r.TraceIDs = append(r.TraceIDs, []string{strings.Repeat("a", 32)})
	}
	text := page(t, report.Page{Runs: []report.Run{r, r}, Planned: 2})
	if len(text) > 300_000 {
		t.Errorf("%d bytes", len(text))
	}
	has(t, text, "Drawn: 60 of 10000 workers; of the round&#39;s spans 18000 were kept, 12345 not.", "and 990 more in the JSON", "calls in flight: 6000 at most, of those recorded", "the last recorded answer after")
	if n := strings.Count(text, `class="row"`); n != 120 {
		t.Errorf("%d rows, want 60 for each run", n)
	}
	if n := strings.Count(text, `class="flight"`); n > 2*400 || n < 200 {
		t.Errorf("%d steps of calls in flight", n)
	}
	if got := printed(func(t *report.Terminal) { t.Waterfalls(r) }); !strings.Contains(got, "12 of 10000 workers; of the round's spans 18000 were kept, 12345 not") {
		t.Errorf("printed:\n%s", got)
	}
}
