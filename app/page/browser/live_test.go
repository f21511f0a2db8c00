package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The live page: the program serves it, and a browser looks.

func startLive(t *testing.T, listen string) live {
	t.Helper()
	l, err := startProgram(program, listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)
	return l
}

// runs are the JSON of the show that is over.
func (l live) runs(t *testing.T) (runs []map[string]any) {
	t.Helper()
	response, err := http.Get(l.url + "runs.json")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&runs); err != nil {
		t.Fatal(err)
	}
	return runs
}

// visitLive opens the page in a window of that width, and fails the test if the page complains.
func visitLive(ctx context.Context, t *testing.T, l live, width int64, theme string) {
	t.Helper()
	o, err := observe(ctx)
	if err == nil {
		err = visit(ctx, l.url, width, 900, 1, theme)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.errors) > 0 {
			t.Errorf("the page complained: %q", o.errors)
		}
		for _, url := range o.requests {
			if !strings.HasPrefix(url, l.url) && !strings.HasPrefix(url, "data:") {
				t.Errorf("the page asked for %s", url)
			}
		}
	})
	until(ctx, t, `document.getElementById("command").textContent !== ""`)
}

// until waits until the page is so.
func until(ctx context.Context, t *testing.T, script string) {
	t.Helper()
	if err := wait(ctx, script); err != nil {
		t.Fatal(err)
	}
}

// set types a value into a setting.
func set(ctx context.Context, t *testing.T, name, value string) {
	t.Helper()
	evaluate[bool](ctx, t, fmt.Sprintf(`(() => { const input = document.getElementById("set-%s"); input.value = %q; input.dispatchEvent(new Event("input")); return true; })()`, name, value))
}

func click(ctx context.Context, t *testing.T, selector string) {
	t.Helper()
	evaluate[bool](ctx, t, fmt.Sprintf(`(document.querySelector(%q).click(), true)`, selector))
}

func choose(ctx context.Context, t *testing.T, drill string) {
	t.Helper()
	evaluate[bool](ctx, t, fmt.Sprintf(`(() => { const list = document.getElementById("drill"); list.value = %q; list.dispatchEvent(new Event("change")); return list.value !== ""; })()`, drill))
}

const (
	standing = `document.getElementById("standing").textContent`
	finished = standing + ` === "Finished"`
	command  = `document.getElementById("command").textContent`
)

// quick makes rounds that do not last.
func quick(ctx context.Context, t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"rounds": "2", "ttl": "700ms"} {
		set(ctx, t, name, value)
	}
}

func TestARunIsStartedAndWatched(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	if text := evaluate[string](ctx, t, standing); text != "Nothing runs" {
		t.Errorf("at first: %q", text)
	}
	quick(ctx, t)
	set(ctx, t, "backend-latency", "800ms")
	until(ctx, t, command+` === "cachelab compare --rounds=2 --ttl=700ms --backend-latency=800ms --redis=embedded --telemetry=off --modes=broken,fixed"`)
	click(ctx, t, "#start")

	// In the herd: 50 calls, 10 of which run, and all of that is there in words.
	until(ctx, t, `document.querySelector("#gauge-flight .value").textContent === "50: 10 run, 40 queue"`)
	until(ctx, t, `document.querySelectorAll("#pictures [data-mode=broken] .row").length === 50 && document.querySelectorAll("#pictures [data-mode=broken] .rows rect.queued").length === 40`)
	until(ctx, t, `document.querySelectorAll("#pictures [data-mode=broken] .rows rect.call[data-open]").length === 10`)
	// A bar that is open grows as time passes; when its call has ended it is another one's turn.
	until(ctx, t, `(() => {
		const width = document.querySelector("#pictures [data-mode=broken] .rows rect.call[data-open]")?.getBoundingClientRect().width ?? 0;
		const grew = window.seenWidth > 0 && width > window.seenWidth;
		window.seenWidth = width;
		return grew;
	})()`)
	if gone := evaluate[string](ctx, t, standing); !strings.HasPrefix(gone, "broken (1 of 2), ") {
		t.Errorf("in the run it says %q", gone)
	}
	if starts := evaluate[bool](ctx, t, `document.getElementById("start").disabled && document.getElementById("choice").disabled && !document.getElementById("stop").disabled`); !starts {
		t.Error("in a run another can be started, or it cannot be stopped")
	}
	// After a round its sums are there, and the key's life runs out.
	until(ctx, t, `document.querySelector("#numbers [data-mode=broken] [data-key=backend_calls] td")?.textContent === "50"`)
	until(ctx, t, `/^lives for 0\.[1-6] s$/.test(document.querySelector("#gauge-key .value").textContent)`)
	// In the fix one holds the lock.
	until(ctx, t, `/^held by worker \d+, for \d\.\d s at most$/.test(document.querySelector("#gauge-lock .value").textContent)`)
	until(ctx, t, `document.querySelector("#gauge-flight .value").textContent === "1; 49 wait for a fill"`)

	until(ctx, t, finished)
	runs := l.runs(t)
	checkLedger(ctx, t, runs)
	for i, mode := range []string{"broken", "fixed"} {
		card := evaluate[map[string]string](ctx, t, fmt.Sprintf(
			`Object.fromEntries([...document.querySelectorAll("#numbers [data-mode=%s] [data-key]")].map(row => [row.dataset.key, row.querySelector("td").textContent]))`, mode))
		outcomes := runs[i]["outcomes"].(map[string]any)
		for key, want := range map[string]any{"backend_calls": runs[i]["backend_calls"], "expiries": runs[i]["expiries"], "requests": runs[i]["requests"],
			"backend_peak": runs[i]["backend_peak"], "outcomes.waited": outcomes["waited"], "outcomes.filled": outcomes["filled"]} {
			if card[key] != fmt.Sprint(want) {
				t.Errorf("%s: the card says of %s %q, the JSON %v", mode, key, card[key], want)
			}
		}
		verdict := evaluate[string](ctx, t, fmt.Sprintf(`document.querySelector("#numbers [data-mode=%s] .verdict").textContent`, mode))
		if verdict != runs[i]["verdict"].(map[string]any)["text"] {
			t.Errorf("%s: the verdict is %q", mode, verdict)
		}
		if badge := evaluate[string](ctx, t, fmt.Sprintf(`document.querySelector("#numbers [data-mode=%s] .badge").textContent`, mode)); badge != "✓ ok" {
			t.Errorf("%s: the badge is %q", mode, badge)
		}
	}
	if even := evaluate[bool](ctx, t, `(rows => rows.length > 5 && rows.every(row => row.cells.length === 4))([...document.querySelectorAll(".compared tr")])`); !even {
		t.Error("the table of the two has no column for each, and for their ratio")
	}
	if rows := evaluate[int](ctx, t, `document.querySelectorAll(".waterfalls .row").length`); rows != 100 {
		t.Errorf("%d rows are drawn of two rounds, want 100", rows)
	}
	if news := evaluate[string](ctx, t, `document.getElementById("news").textContent`); !strings.Contains(news, "fixed: ok, 2 backend calls / 2 expiries = 1.0") {
		t.Errorf("who does not see is told %q", news)
	}
}

func TestStopAndAnotherStrategy(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	set(ctx, t, "backend-latency", "30s")
	evaluate[bool](ctx, t, `(document.getElementById("set-workers").focus(), true)`)
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil { // by keyboard alone
		t.Fatal(err)
	}
	until(ctx, t, `document.querySelector("#gauge-flight .value").textContent.startsWith("50: ")`)
	click(ctx, t, "#stop")
	until(ctx, t, standing+` === "Not finished"`)
	if early := evaluate[string](ctx, t, `document.getElementById("early").textContent`); !strings.Contains(early, "stopped on the page") {
		t.Errorf("the page says %q", early)
	}
	if badge := evaluate[string](ctx, t, `document.querySelector("#numbers [data-mode=fixed] .badge").textContent`); badge != "not run" {
		t.Errorf("what was not run is said to be %q", badge)
	}

	set(ctx, t, "backend-latency", "100ms")
	quick(ctx, t)
	for _, name := range []string{"broken", "fixed", "woken"} {
		click(ctx, t, "#strategies input[value="+name+"]")
	}
	until(ctx, t, command+`.startsWith("cachelab woken --rounds=2 ")`)
	click(ctx, t, "#start")
	until(ctx, t, finished)
	runs := l.runs(t)
	if len(runs) != 1 || runs[0]["mode"] != "woken" || fmt.Sprint(runs[0]["backend_calls"]) != "2" {
		t.Errorf("then there are %d runs: %v", len(runs), runs[0])
	}
	checkLedger(ctx, t, runs)
}

func TestWhatIsWrongIsSaidAtItsPlace(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	set(ctx, t, "workers", "0")
	set(ctx, t, "ttl", "never")
	fault := func(name string) string { return fmt.Sprintf(`document.getElementById("fault-%s").textContent`, name) }
	until(ctx, t, fault("workers")+` === '--workers "0": want a whole number from 1 to 100000'`)
	until(ctx, t, fault("ttl")+`.startsWith('--ttl "never": want a duration')`)
	click(ctx, t, "#start")
	until(ctx, t, `document.activeElement.id === "set-workers"`)
	if invalid := evaluate[int](ctx, t, `document.querySelectorAll("[aria-invalid=true]").length`); invalid != 2 {
		t.Errorf("%d settings are said to be wrong", invalid)
	}
	set(ctx, t, "workers", "5")
	set(ctx, t, "ttl", "1s")
	until(ctx, t, fault("workers")+` === "" && document.querySelectorAll("[aria-invalid]").length === 0`)
	for _, name := range []string{"broken", "fixed"} {
		click(ctx, t, "#strategies input[value="+name+"]")
	}
	until(ctx, t, fault("strategies")+` === "want 1 to 4 strategies"`)
	if text := evaluate[string](ctx, t, standing); text != "Nothing runs" {
		t.Errorf("it says %q", text)
	}
}

func TestADrillAndItsFaults(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "dark")
	choose(ctx, t, "dead-winner")
	until(ctx, t, command+` === "cachelab drill dead-winner --redis=embedded --telemetry=off"`)
	if chosen := evaluate[string](ctx, t, `[...document.querySelectorAll("#strategies input")].map(i => i.value + (i.checked ? "+" : "") + (i.disabled ? "" : "!")).join(" ")`); chosen != "broken fixed+ coalesced woken early stale" {
		t.Errorf("chosen is %q", chosen)
	}
	if workers := evaluate[string](ctx, t, `document.getElementById("set-workers").value`); workers != "20" {
		t.Errorf("the drill has %s workers", workers)
	}
	click(ctx, t, "#start")
	until(ctx, t, `[...document.querySelectorAll("#faults li")].some(li => li.textContent.includes("is killed in its backend call"))`)
	until(ctx, t, finished)
	runs := l.runs(t)
	checkLedger(ctx, t, runs)
	if runs[0]["drill"] != "dead-winner" {
		t.Errorf("the drill was %v", runs[0]["drill"])
	}
	verdict := runs[0]["verdict"].(map[string]any)
	if text := evaluate[string](ctx, t, `document.querySelector("#numbers .verdict").textContent`); text != verdict["text"] {
		t.Errorf("the verdict is %q, the JSON has %q", text, verdict["text"])
	}
	choose(ctx, t, "")
	until(ctx, t, command+`.startsWith("cachelab compare ")`)
}

// A second visitor sees the run of the first, who may go, or come back.
func TestTwoVisitorsAndAReload(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	set(ctx, t, "backend-latency", "2s")
	set(ctx, t, "backend-capacity", "0")
	set(ctx, t, "rounds", "2")
	set(ctx, t, "ttl", "1s")
	set(ctx, t, "workers", "23")
	click(ctx, t, "#start")
	inFlight := `document.querySelector("#gauge-flight .value").textContent === "23"`
	until(ctx, t, inFlight)

	second, leave := chromedp.NewContext(ctx)
	defer leave()
	visitLive(second, t, l, 1000, "dark")
	until(second, t, inFlight)
	until(second, t, `document.querySelectorAll("#pictures [data-mode=broken] .rows rect.call").length === 23`)
	if same := evaluate[string](second, t, `document.getElementById("set-workers").value + document.getElementById("set-backend-latency").value`); same != "232s" {
		t.Errorf("the second visitor sees the settings %q", same)
	}

	if err := chromedp.Do(ctx, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, `document.querySelectorAll("#pictures [data-mode=broken] .rows rect.call").length === 23`)
	if same := evaluate[string](ctx, t, `document.getElementById("set-workers").value`); same != "23" {
		t.Errorf("after a reload there are %q workers", same)
	}
	if err := visit(ctx, "about:blank", 800, 600, 1, "light"); err != nil { // and goes
		t.Fatal(err)
	}
	until(second, t, standing+`.startsWith("fixed (2 of 2)")`)
	until(second, t, finished)
	checkLedger(second, t, l.runs(t))
}

func TestTheProgramIsGoneAndComesBack(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	// The browser itself complains of a connection that is refused: not on the console that a page writes.
	visitLive(ctx, t, l, 1440, "light")
	gone := `!document.getElementById("gone").hidden`
	if evaluate[bool](ctx, t, gone) {
		t.Error("it is said to be gone at first")
	}
	quick(ctx, t)
	click(ctx, t, "#start")
	until(ctx, t, standing+`.startsWith("broken")`)
	l.end()
	until(ctx, t, gone+` && document.getElementById("gone").textContent.startsWith("The program does not answer")`)
	click(ctx, t, "#start")
	startLive(t, strings.TrimSuffix(strings.TrimPrefix(l.url, "http://"), "/"))
	until(ctx, t, "!("+gone+") && "+standing+` === "Nothing runs"`)
	click(ctx, t, "#start")
	until(ctx, t, finished)
}

// Ten thousand workers do not stall the page: it draws as before, and says that it draws some of them.
func TestTenThousandWorkersDoNotStallThePage(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	motion := []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "no-preference"}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: motion}); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"workers": "10000", "rounds": "1", "backend-latency": "5s", "backend-capacity": "0", "ttl": "30s"} {
		set(ctx, t, name, value)
	}
	// Frames are counted before, and while the herd is in the backend.
	evaluate[bool](ctx, t, `(() => {
	  globalThis.calm = []; globalThis.frames = []; let before = 0;
	  const count = (now) => {
	    const herd = /^[0-9]{4,5}/.test(document.querySelector("#gauge-flight .value").textContent), calm = document.getElementById("gauges").hidden;
	    if (before && (herd || calm)) (herd ? frames : globalThis.calm).push(now - before);
	    before = now; requestAnimationFrame(count);
	  };
	  requestAnimationFrame(count); return true;
	})()`)
	until(ctx, t, `calm.length >= 50`)
	evaluate[bool](ctx, t, `(globalThis.atRest = calm.slice(), true)`)
	click(ctx, t, "#start")
	until(ctx, t, `/^[0-9]{4,5}/.test(document.querySelector("#gauge-flight .value").textContent)`)
	until(ctx, t, `document.getElementById("thinned").textContent.startsWith("Shown are the steps of 6") && document.getElementById("thinned").textContent.includes("of 10000 workers")`)
	until(ctx, t, finished)
	rate := func(name string) (perSecond, longest float64) {
		frames, sum := evaluate[[]float64](ctx, t, name), 0.0
		for _, gap := range frames {
			longest, sum = max(longest, gap), sum+gap
		}
		return 1000 * float64(len(frames)) / sum, longest
	}
	calm, _ := rate("atRest")
	herd, longest := rate("frames")
	t.Logf("%.0f frames a second at rest, %.0f under the herd, of which the longest took %.0f ms", calm, herd, longest)
	// The herd has the machine for itself meanwhile. A page that drew all of it would stand still.
	if herd < calm/10 {
		t.Errorf("%.1f frames a second under the herd, %.1f at rest", herd, calm)
	}
	checkLedger(ctx, t, l.runs(t))
}

func TestTheLivePageFitsItsWindowAndIsReadable(t *testing.T) {
	l, ctx := startLive(t, "127.0.0.1:0"), chromium(t)
	visitLive(ctx, t, l, 1440, "light")
	look := func(when string) {
		for _, theme := range []string{"light", "dark"} {
			if err := setTheme(ctx, theme); err != nil {
				t.Fatal(err)
			}
			for what, ratio := range evaluate[map[string]string](ctx, t, contrasts) {
				t.Errorf("%s, %s: %s has a contrast of %s, want 4.5", when, theme, what, ratio)
			}
		}
		for _, width := range []int64{400, 800, 1279, 1440, 2000} {
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
				t.Fatal(err)
			}
			if wide := evaluate[int64](ctx, t, `document.scrollingElement.scrollWidth`); wide > width {
				t.Errorf("%s: at %d px the page is %d px wide", when, width, wide)
			}
		}
		unnamed := evaluate[[]string](ctx, t, `[...document.querySelectorAll("svg[role], [role=region], [role=listitem], section, input, select, button, fieldset.group")]
		  .filter(e => e.checkVisibility() && !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent &&
		    !e.labels?.[0]?.textContent && !(e.tagName === "BUTTON" && e.textContent) && !e.querySelector("legend")?.textContent).map(e => e.outerHTML.slice(0, 80))`)
		if len(unnamed) > 0 {
			t.Errorf("%s: without a name: %q", when, unnamed)
		}
	}
	evaluate[bool](ctx, t, `(document.querySelectorAll("details").forEach(d => d.open = true), true)`)
	look("at first")
	click(ctx, t, "#strategies input[value=stale]")
	click(ctx, t, "#strategies input[value=coalesced]")
	click(ctx, t, "#kinds input[value=traffic]")
	for name, value := range map[string]string{"each": "2s", "ttl": "500ms", "backend-latency": "50ms"} {
		set(ctx, t, name, value)
	}
	click(ctx, t, "#start")
	until(ctx, t, standing+`.startsWith("coalesced")`)
	look("under traffic")
	until(ctx, t, finished)
	evaluate[bool](ctx, t, `(document.querySelectorAll("details").forEach(d => d.open = true), true)`)
	look("at the end of a gallery")
	if even := evaluate[bool](ctx, t, `(rows => rows.length > 10 && rows.every(row => row.cells.length === 5))([...document.querySelectorAll(".compared tr")])`); !even {
		t.Error("the table of the gallery is not of four strategies")
	}
	if shown := evaluate[int](ctx, t, `document.querySelectorAll(".multiples > figure").length`); shown != 4 {
		t.Errorf("%d strategies are drawn side by side, want 4", shown)
	}
	checkLedger(ctx, t, l.runs(t))
}
