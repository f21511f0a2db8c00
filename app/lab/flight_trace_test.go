package lab_test

import (
	"maps"
	"testing"

	"cachelab/app/cache"
	"cachelab/app/internal/redistest"
)

// A flight's steps stand under its MISS, once, and each caller that shares it has one wait, linked to that MISS.
func TestTheTracesOfFlights(t *testing.T) {
	for _, mode := range []string{"coalesced", "woken"} {
		t.Run(mode, func(t *testing.T) {
			o := watch(t, config(t, redistest.Start(t).URL()), mode)
			r := o.run
			equal(t, "backend calls", r.BackendCalls, rounds)
			equal(t, "filled", r.Outcomes[cache.Filled], rounds)
			waiting := r.Outcomes[cache.Waited]
			want := map[string]int{" > round " + mode: 3 * rounds, "round " + mode + " > worker": workers * rounds, "worker > MISS": rounds,
				"worker > GET": o.edges()["worker > GET"], "worker > wait for fill": waiting, "MISS > backend call": rounds,
				"backend call > GET /price": rounds, "GET /price > compute": rounds}
			if mode == "coalesced" {
				want["MISS > SET"] = rounds
				equal(t, "Redis's GETs", r.RedisCommands.Get, len(o.named("GET")))
			} else {
				for _, edge := range []string{"MISS > SET NX PX", "MISS > GET", "MISS > SET, DEL", "MISS > PUBLISH"} {
					want[edge] = rounds
				}
				equal(t, "Redis's GETs", r.RedisCommands.Get, len(o.named("GET"))+len(o.named("SET, DEL")))
				equal(t, "Redis's SETs", r.RedisCommands.Set, len(o.named("SET NX PX"))+len(o.named("SET, DEL")))
				equal(t, "Redis's DELs", r.RedisCommands.Del, rounds)
				equal(t, "Redis's PUBLISHes", r.RedisCommands.Publish, rounds)
				for _, s := range o.named("SET, DEL") {
					equal(t, "ended_cycle", attr(s, "ended_cycle").AsBool(), true)
					equal(t, "lock.released", attr(s, "lock.released").AsBool(), true)
				}
			}
			if got := o.edges(); !maps.Equal(got, want) {
				t.Errorf("spans: got %v, want %v", got, want)
			}
			for _, wait := range o.named("wait for fill") {
				if links := wait.Links(); len(links) != 1 || o.byID[links[0].SpanContext.SpanID()].Name() != "MISS" {
					t.Fatalf("links of a wait: %v, want one to a MISS", links)
				}
			}
		})
	}
}
