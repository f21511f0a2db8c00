package page_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts/factstest"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/page"
)

const ms = time.Millisecond

// galleryRun is 28 s of traffic, a request each 100 ms, with so many calls at each third second.
func galleryRun(mode, color string, calls int) page.Run {
	r := page.Run{Run: factstest.FixedRun(), Color: color, About: "about " + mode, Good: "good " + mode, Costs: "costs " + mode}
	r.Mode, r.Scenario, r.CallsPerTTL, r.NotSent = mode, modes.Gallery, float64(calls), 7
	r.Series = &herd.Series{TTL: 3 * time.Second}
	for n := range 281 {
		due := factstest.Began.Add(time.Duration(n) * 100 * ms)
		one := herd.Response{At: due.Add(ms), Elapsed: ms, Answered: due.Add(-500 * ms)}
		if n%30 == 0 {
			one.Counts = cache.Counts{BackendCalls: calls, SetsAbsent: 1}
			one.At, one.Elapsed = due.Add(250*ms), 250*ms
		}
		r.Series.Add(one)
	}
	return r
}

func TestTheGallerysPageHasItsSeriesOnOneScale(t *testing.T) {
	p := page.Page{Command: "cachelab gallery", Planned: 2, Runs: []page.Run{galleryRun("broken", orange, 90), galleryRun("fixed", green, 1)}}
	text := written(t, p)
	has(t, text, "The same open traffic for each, on the same key.", `<h2 id="series">`, "<b>Good for:</b> good fixed.", "<b>Costs:</b> costs broken.",
		`90.0 <small>calls per TTL</small>`, `<th scope="row">not sent</th><td>7</td><td>7</td>`)
	for _, not := range []string{`id="waterfall"`, `<th scope="col">ratio</th>`, "calls per expiry</small>"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is on the page", not)
		}
	}
	var d struct {
		Stretch time.Duration `json:"stretch_ns"`
		Runs    []struct{ Series []herd.Step }
	}
	if err := json.Unmarshal([]byte(dataBlock.FindStringSubmatch(text)[1]), &d); err != nil {
		t.Fatal(err)
	}
	if d.Stretch != 200*ms || len(d.Runs) != 2 {
		t.Fatalf("a step for each %v of %d runs, want 200ms: 28 s are at most 150 steps", d.Stretch, len(d.Runs))
	}
	for i, calls := range []int{90, 1} {
		if got := d.Runs[i].Series; !slices.Equal(got, p.Runs[i].Series.Steps(200*ms)) || len(got) != 141 ||
			got[15] != (herd.Step{At: 3000 * ms, Calls: calls, Slowest: 250 * ms, Oldest: 750 * ms}) {
			t.Errorf("%d steps: %+v", len(got), got)
		}
	}
}

// However long a gallery is, its page stays small.
func TestThePageOfALongGalleryIsBounded(t *testing.T) {
	r := galleryRun("broken", orange, 90)
	for n := range 100_000 {
		r.Series.Add(herd.Response{At: factstest.Began.Add(time.Duration(n) * 70 * ms), Elapsed: ms})
	}
	if text := written(t, page.Page{Runs: []page.Run{r}, Planned: 1}); len(text) > 120_000 {
		t.Errorf("%d bytes", len(text))
	}
}
