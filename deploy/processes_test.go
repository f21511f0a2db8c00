//go:build e2e

package deploy

import (
	"strconv"
	"strings"
	"testing"
)

// A herd from several processes is stored as it was printed: their spans and metrics add up.
func TestRunsOfSeveralProcessesAreStoredAsTheyWerePrinted(t *testing.T) {
	s := startServers(t)
	small := []string{"--processes", "3", "--workers", "12", "--ttl", "500ms", "--verify"}
	for want, args := range map[int][]string{
		4: {"compare", "--modes", "broken,coalesced,fixed,woken", "--rounds", "2"},
		3: {"live", "--mode", "coalesced,fixed,woken", "--for", "6s", "--each", "2s", "--rate", "60"},
		2: {"gallery", "--modes", "early,stale", "--each", "3s", "--rate", "60", "--backend-latency", "50ms", "--lock-ttl", "1s"},
	} {
		r := s.lab(t, append(args, small...)...)
		if n := strings.Count(r.out, "the app, Redis, Jaeger and Prometheus agree"); r.code != 0 || n != want {
			t.Errorf("%q: exit %d, %d modes agree, want %d:\n%s", args, r.code, n, want, r.out)
		}
	}
	// One trace, an instance for each process, and a link from process to process.
	r := s.lab(t, "fixed", "--processes", "3", "--workers", "12", "--rounds", "1", "--ttl", "500ms")
	if r.code != 0 || len(r.json.TraceIDs) != 1 || len(r.json.TraceIDs[0]) != 3 {
		t.Fatalf("exit %d, traces %v:\n%s", r.code, r.json.TraceIDs, r.out)
	}
	type span struct {
		SpanID, OperationName, ProcessID string
		References                       []struct{ RefType, TraceID, SpanID string }
	}
	type link struct{ waiter, winner string } // the number of the trace, and a span
	instances, misses, links := map[string]bool{}, map[string]string{}, map[string]link{}
	for i, id := range r.json.TraceIDs[0] {
		var traces struct {
			Data []struct {
				Spans     []span
				Processes map[string]struct {
					Tags []struct {
						Key   string
						Value any
					}
				}
			}
		}
		if err := get(t, s.jaeger+"/api/traces/"+id, &traces); err != nil {
			t.Fatal(err)
		}
		for _, one := range traces.Data[0].Processes {
			for _, tag := range one.Tags {
				if tag.Key == "service.instance.id" {
					instances[tag.Value.(string)] = true
				}
			}
		}
		for _, one := range traces.Data[0].Spans {
			if one.OperationName == "MISS" {
				misses[one.SpanID] = strconv.Itoa(i)
			}
			for _, reference := range one.References {
				if one.OperationName == "wait for fill" && reference.RefType != "CHILD_OF" {
					links[one.SpanID] = link{strconv.Itoa(i), reference.SpanID}
				}
			}
		}
	}
	// The coordinator and its price service, and three processes.
	if len(instances) < 4 || len(instances) > 5 {
		t.Errorf("%d instances: %v", len(instances), instances)
	}
	// Whoever takes the lock after the fill, and finds the value, is linked to as well.
	across := 0
	for _, l := range links {
		winner, known := misses[l.winner]
		if !known {
			t.Errorf("a waiter of process %s is linked to %s, which is no MISS of the run", l.waiter, l.winner)
		}
		if winner != l.waiter {
			across++
		}
	}
	if len(links) != r.json.Outcomes["waited"] || across == 0 {
		t.Errorf("%d waiters of %d are linked to winners, %d to one in another process", len(links), r.json.Outcomes["waited"], across)
	}
}
