package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"cachelab/app/modes"
)

// A mode more in the table is on the dashboards, in its colour, and pushes nothing off the page.
func TestAModeMoreIsOnTheDashboards(t *testing.T) {
	toy := modes.Mode{Name: "toy", Color: "#CC79A7", See: "toys at each expiry", Good: "playing", Costs: "time"}
	built, err := files(append(slices.Clone(modes.All()), toy))
	if err != nil {
		t.Fatal(err)
	}
	var home model
	if err := json.Unmarshal(built[herdPage+".json"], &home); err != nil {
		t.Fatal(err)
	}
	asks := map[string]int{} // queries of panels for this mode alone
	colored := strings.Count(string(built[herdPage+".json"]), `"fixedColor": "#CC79A7"`)
	for _, p := range home.Panels {
		for _, target := range p.Targets {
			expr, _ := target["expr"].(string)
			if strings.Contains(expr, `mode="toy"`) || target["operation"] == "round toy" {
				asks[p.Title]++
			}
		}
		if p.Title == "Start here" && !strings.Contains(p.Options.Content, "**toy:** toys at each expiry.") {
			t.Errorf("the page says %q", p.Options.Content)
		}
	}
	var gallery model
	if err := json.Unmarshal(built[galleryPage+".json"], &gallery); err != nil {
		t.Fatal(err)
	}
	overlaps(t, galleryPage, gallery)
	if words := gallery.Panels[0].Options.Content; !strings.Contains(words, "- **toy**, good for: playing. Costs: time.") {
		t.Errorf("the gallery says %q", words)
	}
	for _, title := range []string{"Backend calls per expiry", "Calls saved", "Peak in flight", "Latency p99", "Latency, toy", "Round traces, toy"} {
		if asks[title] != 1 {
			t.Errorf("%q asks %d times for the toy, want once", title, asks[title])
		}
	}
	if colored < 8 {
		t.Errorf("its colour is in %d places", colored)
	}
	overlaps(t, herdPage, home)
}
