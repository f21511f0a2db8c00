package observe

import (
	"testing"

	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/telemetry"
)

// A live run goes on for days: of a token nothing is kept when its request is over, whoever finds it later.
func TestWaitersAreCountedWhileTheirWinnerIsOnItsWayAndForgottenAfterIt(t *testing.T) {
	set := &telemetry.Telemetry{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noopmetric.NewMeterProvider()}
	b, err := New(set, telemetry.Labels{Mode: "fixed", Scenario: "rounds"}, "run", herd.JudgeSingleFill, backend.New(backend.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	probe := b.Probe(cache.NoProbe{})
	kept := func(when string, want int) {
		t.Helper()
		if len(b.waiters) != want {
			t.Errorf("%s: %d tokens are kept, want %d", when, len(b.waiters), want)
		}
	}
	wait := func(holder string) {
		_, end := probe.Wait(t.Context(), holder)
		end(&cache.Result{}, nil)
	}

	winner, winnerEnds := probe.Miss(t.Context(), "key")
	loser, loserEnds := probe.Miss(t.Context(), "key")
	token := b.NewToken(winner)
	b.NewToken(loser)
	wait(token)
	wait(token)
	if b.waiters[token] != 2 {
		t.Errorf("%d waiters, want 2", b.waiters[token])
	}
	b.NewToken(loser) // it tries again
	kept("two requests on their way", 2)
	wait("the token of another process")
	kept("with another process's token found", 2)

	winnerEnds(&cache.Result{Counts: cache.Counts{Acquired: 1}}, nil)
	kept("after the fill", 1)
	wait(token) // a late one: its reply was on its way
	kept("with the token found late", 1)
	loserEnds(&cache.Result{Counts: cache.Counts{Held: 2}}, nil)
	kept("in the end", 0)
}
