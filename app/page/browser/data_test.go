package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// onData has the page's data at hand, for a script that draws it otherwise.
const onData = `const data = JSON.parse(document.getElementById("data").textContent); `

// More modes, more rounds, workers of several processes, kinds of spans that nobody knows yet: more data, no other script.
func TestThePictureFollowsTheData(t *testing.T) {
	ctx := chromium(t)
	show(ctx, t, ordinary.page, 1200, "light")
	type drawn struct {
		Figures, Rows, Histograms int
		Modes, Colours, Processes []string
		Legend                    string
		Again                     int
	}
	got := evaluate[drawn](ctx, t, onData+`(data => {
	  const colours = ["#0072B2", "#F0E442", "#CC79A7", "#000000"];
	  for (const [i, color] of colours.entries()) {
	    const run = structuredClone(data.runs[1]);
	    run.facts.mode = "mode " + i, run.color = color;
	    run.rounds[0].rows[0].bars.push({ kind: "wake", start_ns: 1e6, end_ns: 2e6 }, { kind: "constructor", start_ns: 1e6, end_ns: 2e6, text: "failed" });
	    data.runs.push(run);
	  }
	  const fleet = data.runs[1].rounds[0].rows;
	  fleet.forEach((row, i) => { row.process = i < 25 ? "process 1" : "process 2"; row.worker = i + 1; row.waits_for = row.winner ? undefined : [1]; });
	  draw(data);
	  const all = (s) => [...document.querySelectorAll(s)], text = (s) => all(s).map(e => e.textContent);
	  const d = { Figures: all(".waterfall").length, Rows: all(".row").length, Histograms: all(".histogram").length, Modes: text(".waterfall h3"),
	    Colours: all(".waterfall h3").map(e => getComputedStyle(e).color), Processes: text(".process"), Legend: all(".legend").at(-1).textContent };
	  data.runs[0].rounds[0].rows.push({ worker: 51, outcome: "filled", start_ns: 0, answer_ns: 1e6, bars: null });
	  draw(data);
	  d.Again = all(".row").length;
	  return d;
	})(data)`)
	if got.Figures != 6 || got.Histograms != 6 || got.Rows != 300 || got.Again != 301 {
		t.Errorf("%+v", got)
	}
	if want := []string{"broken", "fixed", "mode 0", "mode 1", "mode 2", "mode 3"}; !slices.Equal(got.Modes, want) {
		t.Errorf("the modes are %q", got.Modes)
	}
	slices.Sort(got.Colours)
	if n := len(slices.Compact(got.Colours)); n != 6 {
		t.Errorf("%d colours: %q", n, got.Colours)
	}
	for _, theme := range []string{"light", "dark"} { // yellow on white, black on black
		if err := setTheme(ctx, theme); err != nil {
			t.Fatal(err)
		}
		for what, ratio := range evaluate[map[string]string](ctx, t, contrasts) {
			t.Errorf("%s: %s has a contrast of %s, want 4.5", theme, what, ratio)
		}
	}
	if !slices.Equal(got.Processes, []string{"process 1", "process 2"}) || !strings.HasSuffix(got.Legend, "failedwake") {
		t.Errorf("the processes are %q, the legend %q", got.Processes, got.Legend)
	}
	// A waiter of the second process is tied to the winner, which is in the first.
	evaluate[bool](ctx, t, `document.querySelectorAll(".waterfall[data-mode=fixed] .row")[30].dispatchEvent(new PointerEvent("pointerenter"))`)
	tied := evaluate[[]string](ctx, t, `[...document.querySelectorAll(".waterfall[data-mode=fixed] .row.tied")].map(r => r.dataset.process + " " + r.dataset.worker)`)
	if !slices.Equal(tied, []string{"process 1 1"}) {
		t.Errorf("tied: %q", tied)
	}
	for _, width := range []int64{400, 1200, 2000} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
			t.Fatal(err)
		}
		if wide := evaluate[int64](ctx, t, `document.scrollingElement.scrollWidth`); wide > width {
			t.Errorf("six modes at %d px are %d px wide", width, wide)
		}
	}
}

func TestWithoutScriptsThereAreWordsAndNumbers(t *testing.T) {
	ctx := chromium(t)
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	show(ctx, t, ordinary.page, 1200, "light")
	text := evaluate[string](ctx, t, `document.body.innerText`)
	for _, want := range []string{"scripts are off here", "100 backend calls / 2 expiries = 50.0: a thundering herd", "2 backend calls / 2 expiries = 1.0", "calls_per_expiry", "wait-timeout"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for _, gone := range []string{"One round, worker by worker", "How long the requests took"} {
		if strings.Contains(text, gone) {
			t.Errorf("an empty section says %q", gone)
		}
	}
}

func TestOnPaperItIsLightAndFits(t *testing.T) {
	ctx := chromium(t)
	const accent = `getComputedStyle(document.querySelector(".waterfall h3")).color`
	show(ctx, t, ordinary.page, 700, "light")
	light := evaluate[string](ctx, t, accent)
	show(ctx, t, ordinary.page, 700, "dark")
	if dark := evaluate[string](ctx, t, accent); dark == light {
		t.Errorf("light and dark have the accent %s", dark)
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print",
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}); err != nil {
		t.Fatal(err)
	}
	type paper struct {
		Ground, Accent string
		Wide, Hints    int
	}
	got := evaluate[paper](ctx, t, `(() => ({
	  Ground: getComputedStyle(document.body).backgroundColor, Accent: `+accent+`,
	  Wide: document.scrollingElement.scrollWidth, Hints: [...document.querySelectorAll(".by-hand, .detail, summary")].filter(e => e.checkVisibility()).length,
	}))()`)
	if want := (paper{"rgb(255, 255, 255)", light, 700, 0}); got != want {
		t.Errorf("on paper: %+v, want %+v", got, want)
	}
}

// A winner whose call failed has not filled, and the next one has waited for it.
func TestAWinnerThatFailedIsNotSaidToHaveFilled(t *testing.T) {
	ctx := chromium(t)
	file := filepath.Join(t.TempDir(), "drill.html")
	if out, err := exec.CommandContext(ctx, program, "drill", "backend-error", "--redis", "embedded", "--telemetry", "off", "--records", "", "--quiet",
		"--report", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	show(ctx, t, file, 1200, "light")
	names := evaluate[[]string](ctx, t, `[...document.querySelectorAll(".row.winner")].map(r => r.getAttribute("aria-label"))`)
	for i, want := range []string{
		`^worker \d+: won the fill lock, error, backend call of [\d.]+ ms, failed; answered after `,
		`^worker \d+: won the fill lock and filled, having waited for worker \d+, \d polls?, backend call of [\d.]+ ms; answered after `,
	} {
		if len(names) != 2 || !regexp.MustCompile(want).MatchString(names[i]) {
			t.Errorf("the winners are %q, want %s", names, want)
		}
	}
	if n := evaluate[int](ctx, t, `document.querySelectorAll(".rows rect.failed").length`); n != 1 {
		t.Errorf("%d spans are drawn as failed, want 1", n)
	}
}
