package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// The series of all strategies are drawn on the same scales, a bar for each step that is not 0.
func TestTheGallerysSeriesAreDrawnOnTheSameScales(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gallery.html")
	command := exec.CommandContext(t.Context(), program, "gallery", "--modes", "broken,fixed", "--each", "2s", "--ttl", "500ms", "--backend-latency", "50ms",
		"--redis", "embedded", "--telemetry", "off", "--records", "", "--report", file)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v (is the program built?): %s", err, out)
	}
	ctx := chromium(t)
	show(ctx, t, file, 1200, "light")
	if shown := evaluate[int](ctx, t, `document.querySelectorAll(".multiples > figure").length`); shown != 2 {
		t.Fatalf("%d pictures, want one for each strategy", shown)
	}
	for _, curve := range []struct{ class, value string }{{"series-calls", "calls"}, {"series-slowest", "slowest_ns"}, {"series-oldest", "oldest_ns"}} {
		wrong := evaluate[[]string](ctx, t, fmt.Sprintf(`(data => {
		  const most = Math.max(...data.runs.flatMap(run => run.series.map(step => step.%[2]s)));
		  return data.runs.flatMap((run, i) => {
		    const want = run.series.filter(step => step.%[2]s > 0).map(step => Math.max(1, 56 * step.%[2]s / most));
		    const got = [...document.querySelectorAll(".multiples > figure")[i].querySelectorAll(".%[1]s")].map(bar => +bar.getAttribute("height"));
		    const same = got.length > 0 && got.length === want.length && got.every((height, n) => Math.abs(height - want[n]) < .01);
		    return same ? [] : [run.facts.mode + ": " + got + " and not " + want];
		  });
		})(JSON.parse(document.getElementById("data").textContent))`, curve.class, curve.value))
		if len(wrong) > 0 {
			t.Errorf("%s: %q", curve.value, wrong)
		}
	}
	if sideways := evaluate[int](ctx, t, `document.documentElement.scrollWidth - innerWidth`); sideways > 0 {
		t.Errorf("the page is %d px too wide", sideways)
	}
}
