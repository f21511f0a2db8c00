package observe_test

import (
	"context"
	"os"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/app/observe"
	"cachelab/telemetry"
)

// What the invariant is, the mode's judge says: here that two calls are as many as there should be.
func TestTheVerdictOnARoundIsTheJudges(t *testing.T) {
	judge := func(l herd.Ledger) herd.Verdict {
		return herd.Verdict{Invariant: l.BackendCalls == 2, Unknown: l.SetsUnanswered > 0}
	}
	recorder := tracetest.NewSpanRecorder()
	set, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.Off, Run: "test", Lookup: os.LookupEnv, Spans: recorder})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Shutdown(context.Background())
	bridge, err := observe.New(set, telemetry.Labels{Mode: "test"}, "test", judge, backend.New(backend.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	for n, counts := range []cache.Counts{{BackendCalls: 2, SetsAbsent: 1}, {BackendCalls: 1, SetsAbsent: 1}, {BackendCalls: 2, SetsUnanswered: 1}} {
		_, end := bridge.Observer(herd.NoObserver{}).Round(t.Context(), herd.Round{Number: n + 1, Workers: 1})
		end(herd.RoundSummary{Sum: herd.Sum{Counts: counts, Expiries: counts.SetsAbsent}})
	}
	var verdicts []string
	for _, s := range recorder.Ended() {
		verdicts = append(verdicts, verdictOf(s))
	}
	want := []string{"invariant held", "invariant broken", "not known: a SET was not answered"}
	if len(verdicts) != 3 || verdicts[0] != want[0] || verdicts[1] != want[1] || verdicts[2] != want[2] {
		t.Errorf("verdicts %q, want %q", verdicts, want)
	}
}

func verdictOf(s sdktrace.ReadOnlySpan) string {
	for _, a := range s.Attributes() {
		if a.Key == telemetry.Verdict {
			return a.Value.AsString()
		}
	}
	return ""
}
