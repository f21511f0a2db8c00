package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The page in a real browser. The program must have been built: "make browser" does that.

const program = "../../../.bin/cachelab"

// made is a comparison with its page and its JSON.
type made struct {
	page string
	runs []map[string]any
}

// ordinary is one with the default settings, made once for all tests.
var ordinary made

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "browser")
		if err == nil {
			defer os.RemoveAll(dir)
			ordinary, err = compare(context.Background(), dir, "--rounds", "2")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func compare(ctx context.Context, dir string, args ...string) (m made, err error) {
	m.page = filepath.Join(dir, "a report.html")
	file := filepath.Join(dir, "runs.json")
	command := exec.CommandContext(ctx, program, append([]string{"compare", "--redis", "embedded", "--telemetry", "off", "--records", "", "--quiet",
		"--report", m.page, "--json", file}, args...)...)
	if out, err := command.CombinedOutput(); err != nil {
		return m, fmt.Errorf("%w (is the program built?): %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	return m, decoder.Decode(&m.runs)
}

// compareKey makes a quick one with another key.
func compareKey(t *testing.T, key string) made {
	t.Helper()
	m, err := compare(t.Context(), t.TempDir(), "--rounds", "1", "--backend-latency", "20ms", "--ttl", "500ms", "--key", key)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// chromium starts a browser that ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	limited, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, end := startBrowser(limited, t.TempDir())
	t.Cleanup(end)
	return ctx
}

func evaluate[T any](ctx context.Context, t *testing.T, script string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return value
}

func show(ctx context.Context, t *testing.T, file string, width int64, theme string) {
	t.Helper()
	if err := open(ctx, file, width, 900, 1, theme); err != nil {
		t.Fatal(err)
	}
}

func TestThePageOpensFromDiskAloneAndWithoutAnError(t *testing.T) {
	ctx := chromium(t)
	o, err := observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const key = `</script><img src=x onerror="console.error(1)">&'`
	m := compareKey(t, key)
	show(ctx, t, m.page, 1200, "light")
	if text := evaluate[string](ctx, t, `document.querySelector(".settings").textContent`); !strings.Contains(text, key) {
		t.Errorf("the key is not shown as it is in: %s", text)
	}
	if rows := evaluate[int](ctx, t, `document.querySelectorAll(".row").length`); rows != 100 {
		t.Errorf("%d rows are drawn, want 100", rows)
	}
	// Words in what is drawn, wherever they are from, are there as they are.
	changed := evaluate[[]int](ctx, t, onData+`(data => {
	  const nasty = "</text></script><img src=x onerror='console.error(2)'>";
	  for (const run of data.runs) {
	    run.facts.mode = nasty;
	    for (const row of run.rounds[0].rows) row.outcome = row.bars.at(-1).text = row.bars.at(-1).kind = nasty;
	  }
	  draw(data);
	  return [document.querySelectorAll("img").length, document.querySelectorAll("script").length, document.body.textContent.split(nasty).length - 1];
	})(data)`)
	if changed[0] != 0 || changed[1] != 2 || changed[2] < 300 {
		t.Errorf("%d images, %d scripts, the words %d times", changed[0], changed[1], changed[2])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.requests) == 0 || !strings.HasPrefix(o.requests[0], "file://") {
		t.Fatalf("the browser's requests were not seen: %q", o.requests)
	}
	for _, url := range o.requests[1:] {
		if !strings.HasPrefix(url, "data:") {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(o.errors) > 0 {
		t.Errorf("the page complained: %q", o.errors)
	}
}

func TestTheNumbersOfThePageAreThoseOfTheJSON(t *testing.T) {
	ctx := chromium(t)
	show(ctx, t, ordinary.page, 1200, "light")
	checkLedger(ctx, t, ordinary.runs)
	want := fmt.Sprintf("%v → %v backend calls", ordinary.runs[0]["backend_calls"], ordinary.runs[1]["backend_calls"])
	if head := evaluate[string](ctx, t, `document.querySelector("h1").innerText`); head != want {
		t.Errorf("the headline is %q, want %q", head, want)
	}
	rows := evaluate[int](ctx, t, `document.querySelectorAll(".waterfall[data-mode=fixed] .row").length`)
	calls := evaluate[int](ctx, t, `document.querySelectorAll(".waterfall[data-mode=fixed] .row rect.call").length`)
	wall := evaluate[int](ctx, t, `document.querySelectorAll(".waterfall[data-mode=broken] .row rect.call").length`)
	if rows != 50 || wall != 50 || calls != 1 {
		t.Errorf("%d rows, %d calls in broken, %d in fixed", rows, wall, calls)
	}
}

// checkLedger holds the table of the ledger against the JSON of the runs.
func checkLedger(ctx context.Context, t *testing.T, runs []map[string]any) {
	t.Helper()
	shown := evaluate[map[string][]string](ctx, t,
		`Object.fromEntries([...document.querySelectorAll(".ledger tr[data-key]")].map(r => [r.dataset.key, [...r.querySelectorAll("td")].map(c => c.textContent)]))`)
	checked := 0
	for i, run := range runs {
		var check func(key string, value any)
		check = func(key string, value any) {
			if inner, ok := value.(map[string]any); ok {
				for name, v := range inner {
					check(strings.TrimPrefix(key+"."+name, "."), v)
				}
				return
			}
			want := fmt.Sprint(value)
			if _, list := value.([]any); list {
				want = strings.Trim(want, "[]") // no spans were delivered, so it is empty
			}
			checked++
			if got := shown[key]; len(got) != len(runs) || got[i] != want {
				t.Errorf("%s of run %d: the page says %q, the JSON %s", key, i, got, want)
			}
		}
		check("", run)
	}
	if checked < 40*len(runs) {
		t.Errorf("only %d values were checked", checked)
	}
}

// marked is what is marked in the waterfall of fixed.
type marked struct {
	Current, Tied, Winner, Detail string
	Ties                          int // visible lines to winners
}

const readMarks = `(() => {
  const f = document.querySelector(".waterfall[data-mode=fixed]"), one = (s) => [...f.querySelectorAll(s)].map(r => r.dataset.worker).join(" ");
  return { Current: one(".row.current"), Tied: one(".row.tied"), Winner: one(".row.winner"), Detail: f.querySelector(".detail").textContent,
    Ties: [...f.querySelectorAll(".tie")].filter(l => getComputedStyle(l).visibility === "visible").length };
})()`

func TestAWaiterMarksItsWinner(t *testing.T) {
	ctx := chromium(t)
	show(ctx, t, ordinary.page, 1200, "light")
	check := func(how string, got marked, current string) {
		t.Helper()
		if got.Winner == "" || strings.Contains(got.Winner, " ") || got.Current != current || got.Tied != got.Winner || got.Ties != 1 ||
			!strings.Contains(got.Detail, "waited for worker "+got.Winner) {
			t.Errorf("%s worker %s: %+v", how, current, got)
		}
	}
	nothing := evaluate[marked](ctx, t, readMarks)
	if nothing.Current != "" || nothing.Tied != "" || nothing.Ties != 0 {
		t.Errorf("marked before anything was pointed at: %+v", nothing)
	}

	type point struct {
		X, Y   float64
		Worker string
	}
	p := evaluate[point](ctx, t, `(() => {
	  const row = document.querySelectorAll(".waterfall[data-mode=fixed] .row")[20]; row.scrollIntoView({block: "center"});
	  const b = row.querySelector(".band").getBoundingClientRect(); return { X: b.x + b.width * .9, Y: b.y + b.height / 2, Worker: row.dataset.worker };
	})()`)
	if err := chromedp.Do(ctx, chromedp.MouseEvent("mouseMoved", p.X, p.Y)); err != nil {
		t.Fatal(err)
	}
	check("pointing at", evaluate[marked](ctx, t, readMarks), p.Worker)
	if err := chromedp.Do(ctx, chromedp.MouseEvent("mouseMoved", 1, 1)); err != nil {
		t.Fatal(err)
	}
	if got := evaluate[marked](ctx, t, readMarks); got.Current != "" || got.Ties != 0 {
		t.Errorf("still marked: %+v", got)
	}

	// By keyboard: Tab comes to the first row, the arrows go on.
	evaluate[bool](ctx, t, `document.querySelector(".waterfall[data-mode=fixed] .row").focus(), true`)
	got := evaluate[marked](ctx, t, readMarks)
	if got.Current != got.Winner || len(strings.Fields(got.Tied)) < 40 {
		t.Errorf("the winner is not tied to its waiters: %+v", got)
	}
	for range 3 {
		if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.ArrowDown)); err != nil {
			t.Fatal(err)
		}
	}
	fourth := evaluate[string](ctx, t, `document.querySelectorAll(".waterfall[data-mode=fixed] .row")[3].dataset.worker`)
	check("focusing", evaluate[marked](ctx, t, readMarks), fourth)
	if name := evaluate[string](ctx, t, `document.activeElement.getAttribute("aria-label")`); !strings.HasPrefix(name, "worker "+fourth+": waited for worker ") {
		t.Errorf("what has the focus is called %q", name)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.End)); err != nil {
		t.Fatal(err)
	}
	last := evaluate[string](ctx, t, `[...document.querySelectorAll(".waterfall[data-mode=fixed] .row")].at(-1).dataset.worker`)
	check("End:", evaluate[marked](ctx, t, readMarks), last)
	if stops := evaluate[int](ctx, t, `document.querySelectorAll(".waterfall[data-mode=fixed] .row[tabindex='0']").length`); stops != 1 {
		t.Errorf("%d rows are tab stops, want 1", stops)
	}
}

// contrasts are the colours of texts against what is behind them, as ratios of luminance: WCAG asks for 4.5.
const contrasts = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (c) => { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$|transparent/.test(c)) return c; } };
  const found = {};
  for (const e of document.querySelectorAll("h1 *, h2, h3, p, th, td, summary, a, li, label, pre, svg text, .badge")) {
    if (!e.textContent.trim()) continue;
    const s = getComputedStyle(e), ink = e.closest("svg") ? s.fill : s.color;
    const [a, b] = [light(rgb(ink)), light(rgb(behind(e)))].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found[e.tagName + "." + (e.getAttribute("class") ?? "") + " " + e.textContent.trim().slice(0, 20)] = ratio.toFixed(2);
  }
  return found;
})()`

func TestBothThemesAreReadable(t *testing.T) {
	ctx := chromium(t)
	grounds := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		show(ctx, t, ordinary.page, 1200, theme)
		grounds[theme] = evaluate[string](ctx, t, `getComputedStyle(document.body).backgroundColor`)
		for what, ratio := range evaluate[map[string]string](ctx, t, contrasts) {
			t.Errorf("%s: %s has a contrast of %s, want 4.5", theme, what, ratio)
		}
	}
	if grounds["light"] != "rgb(246, 246, 243)" || grounds["dark"] != "rgb(16, 20, 26)" {
		t.Errorf("the grounds are %v", grounds)
	}
}

func TestAPhoneScrollsDownOnly(t *testing.T) {
	ctx := chromium(t)
	m := compareKey(t, strings.Repeat("a-long-key:", 30))
	for _, width := range []int64{320, 375, 768, 1200} {
		show(ctx, t, m.page, width, "light")
		evaluate[bool](ctx, t, `document.querySelectorAll("details").forEach(d => d.open = true), document.querySelector("#stretch").click(), true`)
		if wide := evaluate[int64](ctx, t, `document.scrollingElement.scrollWidth`); wide > width {
			t.Errorf("at %d px the page is %d px wide", width, wide)
		}
		small := evaluate[float64](ctx, t, `Math.min(...[...document.querySelectorAll("svg text")].map(e => parseFloat(getComputedStyle(e).fontSize)))`)
		plot := evaluate[float64](ctx, t, `document.querySelector(".rows").getBoundingClientRect().width`)
		if small < 9 || plot < 200 {
			t.Errorf("at %d px the letters have %g px, the plot %g", width, small, plot)
		}
	}
}

func TestStretchingShowsEachOnItsOwnScale(t *testing.T) {
	ctx := chromium(t)
	show(ctx, t, ordinary.page, 1200, "light")
	const share = `(() => { const f = document.querySelector(".waterfall[data-mode=fixed]"), w = (s) => f.querySelector(s).getBoundingClientRect().width;
	  return Math.max(...[...f.querySelectorAll(".rows rect.wait")].map(r => r.getBoundingClientRect().width)) / w(".rows .band") })()`
	before := evaluate[float64](ctx, t, share)
	evaluate[bool](ctx, t, `document.querySelector("#stretch").click(), true`)
	after := evaluate[float64](ctx, t, share)
	if before > 0.5 || after < 0.8 || after > 1 {
		t.Errorf("the longest wait takes %.2f of the width, and stretched %.2f", before, after)
	}
}

func TestScreenReadersGetNamesAndTables(t *testing.T) {
	ctx := chromium(t)
	show(ctx, t, ordinary.page, 1200, "light")
	unnamed := evaluate[[]string](ctx, t, `[...document.querySelectorAll("svg[role], [role=region], [role=listitem], section")]
	  .filter(e => !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent).map(e => e.outerHTML.slice(0, 80))`)
	if len(unnamed) > 0 {
		t.Errorf("without a name: %q", unnamed)
	}
	if tables := evaluate[int](ctx, t, `document.querySelectorAll(".waterfall table tbody tr").length`); tables != 100 {
		t.Errorf("%d workers in the tables, want 100", tables)
	}
	if heads := evaluate[int](ctx, t, `[...document.querySelectorAll("table")].filter(t => !t.querySelector("th[scope=col]")).length`); heads != 0 {
		t.Errorf("%d tables without heads", heads)
	}
}
