package facts_test

import (
	"slices"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/facts/factstest"
	"cachelab/telemetry"
)

const ms = time.Millisecond

func TestARoundIsReadFromItsSpans(t *testing.T) {
	broken, fixed := facts.NewWaterfall(factstest.BrokenRound()), facts.NewWaterfall(factstest.FixedRound())
	if broken.Calls != 20 || broken.Peak != 20 || broken.Elapsed != 1021*ms || len(broken.Rows) != 20 {
		t.Errorf("broken: peak %d, %v, %d rows", broken.Peak, broken.Elapsed, len(broken.Rows))
	}
	if fixed.Calls != 1 || fixed.Peak != 1 || fixed.Elapsed != 295*ms || len(fixed.Rows) != 20 {
		t.Errorf("fixed: peak %d, %v, %d rows", fixed.Peak, fixed.Elapsed, len(fixed.Rows))
	}
	if want := []facts.Level{{At: 3 * ms, N: 1}, {At: 253 * ms, N: 0}}; !slices.Equal(fixed.InFlight, want) {
		t.Errorf("fixed: in flight %v, want %v", fixed.InFlight, want)
	}
	first, last := broken.InFlight[0], broken.InFlight[len(broken.InFlight)-1]
	if first != (facts.Level{At: ms, N: 20}) || last != (facts.Level{At: 1020 * ms, N: 0}) {
		t.Errorf("broken: in flight from %v to %v", first, last)
	}
	for _, row := range broken.Rows {
		if row.Winner || len(row.WaitsFor) > 0 {
			t.Errorf("broken has a winner or a waiter: %+v", row)
		}
	}

	winner := fixed.Rows[0]
	if winner.Worker != 7 || !winner.Winner || winner.Answer != 255*ms {
		t.Errorf("the first row of fixed is %+v", winner)
	}
	var kinds []string
	for _, bar := range winner.Bars {
		kinds = append(kinds, bar.Kind+" "+bar.Text)
	}
	if want := []string{"GET miss", "SET NX PX acquired", "GET miss", "backend call ", "SET ended the cycle", "DEL released"}; !slices.Equal(kinds, want) {
		t.Errorf("the winner's spans: %q, want %q", kinds, want)
	}
	answers := []time.Duration{}
	for _, row := range fixed.Rows[1:] {
		answers = append(answers, row.Answer)
		want := 7
		if row.Worker == 20 {
			want = 0 // not recorded
		}
		if row.Winner || row.Polls != 5 || !slices.Equal(row.WaitsFor, []int{want}) {
			t.Errorf("a waiter: %+v", row)
		}
	}
	if !slices.IsSorted(answers) {
		t.Errorf("the rows are not in the order of their answers: %v", answers)
	}
}

func TestSpansWithoutTheirWorkerAreLeftOut(t *testing.T) {
	recording := factstest.FixedRound()
	recording.Spans = slices.DeleteFunc(recording.Spans, func(s telemetry.Span) bool {
		return s.Name == "worker" && s.Attributes["number"] != int64(3)
	})
	round := facts.NewWaterfall(recording)
	if len(round.Rows) != 1 || round.Rows[0].Worker != 3 || !slices.Equal(round.Rows[0].WaitsFor, []int{0}) {
		t.Errorf("got %+v", round.Rows)
	}
	if empty := facts.NewWaterfall(telemetry.Recording{}); len(empty.Rows) != 0 || len(empty.InFlight) != 0 {
		t.Errorf("got %+v of nothing", empty)
	}
}
