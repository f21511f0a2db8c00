package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"cachelab/app/facts"
	"cachelab/app/facts/factstest"
	"cachelab/app/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as in %s (go test ./app/report -update writes it anew). Got:\n%s", file, got)
	}
}

// printed is what a plain terminal gets.
func printed(print func(*report.Terminal)) string {
	var screen strings.Builder
	terminal := report.PlainTerminal(&screen)
	print(terminal)
	_ = terminal.Close() // a builder takes everything
	return screen.String()
}

func TestWhatIsPrinted(t *testing.T) {
	interrupted := factstest.FixedRun()
	interrupted.Error, interrupted.Verdict.OK = "in round 1: context canceled", false
	interrupted.StoreErrors, interrupted.BackendErrors, interrupted.Lock.Timeouts = 2, 1, 3
	interrupted.Tolerated, interrupted.Unanswered.Set, interrupted.Refused.Release = 1, 1, 2
	interrupted.FirstErrors = []string{"GET: connection refused", "SET: i/o timeout"}
	interrupted.RedisCommands.Standing = "shared"
	for name, print := range map[string]func(*report.Terminal){
		"summary-broken":      func(t *report.Terminal) { t.Summary(factstest.BrokenRun()) },
		"summary-fixed":       func(t *report.Terminal) { t.Summary(factstest.FixedRun()) },
		"summary-interrupted": func(t *report.Terminal) { t.Summary(interrupted) },
		"waterfall-broken":    func(t *report.Terminal) { t.Waterfalls(factstest.BrokenRun()) },
		"waterfall-fixed":     func(t *report.Terminal) { t.Waterfalls(factstest.FixedRun()) },
		"compare": func(t *report.Terminal) {
			t.Waterfalls(factstest.BrokenRun(), factstest.FixedRun())
			t.Compare(factstest.BrokenRun(), factstest.FixedRun())
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := printed(print)
			golden(t, name, text)
			if strings.Contains(text, "\x1b") {
				t.Error("escape codes, although it is no terminal")
			}
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSpace(line)); strings.HasPrefix(name, "waterfall") && n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

func TestAWaterfallWithoutARoundPrintsNothing(t *testing.T) {
	if got := printed(func(t *report.Terminal) { t.Waterfalls(facts.Run{Mode: "fixed"}) }); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestAWaterfallSaysWhatItLeavesOut(t *testing.T) {
	r := factstest.BrokenRun()
	r.Waterfall.Workers, r.Waterfall.Omitted = 10_000, 12_345
	if got := printed(func(t *report.Terminal) { t.Waterfalls(r) }); !strings.Contains(got, "12 of 10000 workers; of the round's spans 101 were kept, 12345 not") {
		t.Errorf("printed:\n%s", got)
	}
}
