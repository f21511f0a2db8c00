package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/record"
)

// due is how many requests are due by a schedule within a time.
func due(seed uint64, rate float64, length time.Duration) (n int) {
	for at := range herd.Schedule(seed, rate) {
		if at >= length {
			break
		}
		n++
	}
	return n
}

func TestTheGalleryShowsEachModeUnderTheSameTraffic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, redis string) {
		records := t.TempDir()
		out := run(t.Context(), t, nil, "gallery", "--redis", redis, "--telemetry", "off", "--json", "-", "--records", records,
			"--modes", "broken,fixed", "--each", "3s", "--rate", "200", "--ttl", "500ms", "--backend-latency", "100ms", "--seed", "7")
		equal(t, "exit code", out.code, cli.ExitOK)
		runs := decodeAll(t, out.stdout)
		if len(runs) != 2 || runs[0].Mode != "broken" || runs[1].Mode != "fixed" || runs[0].ID != runs[1].ID || !strings.HasPrefix(runs[0].ID, "gallery-") {
			t.Fatalf("runs: %+v\n%s", runs, out.stderr)
		}
		broken, fixed := runs[0], runs[1]
		for _, r := range runs {
			equal(t, r.Mode+"'s scenario", r.Scenario, modes.Gallery)
			equal(t, r.Mode+"'s requests", r.Requests, due(7, 200, 3*time.Second))
			equal(t, r.Mode+": Redis counted", r.RedisCommands, facts.RedisCommands{Commands: redisCommands(r), Standing: "exact"})
			if !strings.Contains(out.stderr, ", "+r.Mode+": ") || !strings.Contains(out.stderr, r.Mode+", verdict: ok, ") {
				t.Errorf("%s is not in:\n%s", r.Mode, out.stderr)
			}
			mode, _ := modes.All().Find(r.Mode)
			shown := strings.Join(strings.Fields(out.stderr), " ")
			for _, sentence := range []string{"good for: " + mode.Good, "costs: " + mode.Costs} {
				if !strings.Contains(shown, sentence) {
					t.Errorf("not printed: %s", sentence)
				}
			}
		}
		if broken.Redundant == 0 || broken.CallsPerTTL < 2 {
			t.Errorf("broken: %d redundant calls, %.2f a TTL", broken.Redundant, broken.CallsPerTTL)
		}
		equal(t, "fixed's redundant calls", fixed.Redundant, 0)
		equal(t, "fixed's repeated calls", fixed.Repeated, 0)
		if fixed.CallsPerTTL < 0.3 || fixed.CallsPerTTL > 1 {
			t.Errorf("fixed: %.2f calls a TTL, want about 500 / 600", fixed.CallsPerTTL)
		}
		kept, err := record.Load(records, "")
		if err != nil || len(kept) != 2 || kept[0].Run.ID != broken.ID {
			t.Errorf("%d records for verify, %v", len(kept), err)
		}
		if strings.Contains(out.stderr, "summary of") {
			t.Error("summaries, although one table says it all")
		}
	})
}

func TestEachModeOfTheGalleryBeginsWithoutTheKey(t *testing.T) {
	t.Parallel()
	out := run(t.Context(), t, nil, "gallery", "--redis", "embedded", "--telemetry", "off", "--json", "-", "--modes", "fixed,broken",
		"--each", "500ms", "--ttl", "1m", "--backend-latency", "10ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	for _, r := range decodeAll(t, out.stdout) {
		equal(t, r.Mode+"'s expiries", r.Expiries, 1)
	}
}

func TestAGalleryThatIsInterruptedTellsWhatThereIs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	page := filepath.Join(t.TempDir(), "gallery.html")
	out := runUntil(ctx, t, nil, regexp.MustCompile(`phase 1, fixed: `), cancel, "gallery", "--modes", "fixed,broken", "--each", "1s", "--ttl", "300ms",
		"--redis", "embedded", "--telemetry", "off", "--json", "-", "--report", page)
	equal(t, "exit code", out.code, cli.ExitFailed)
	if runs := decodeAll(t, out.stdout); len(runs) == 0 || runs[0].Mode != "fixed" || runs[0].Requests != due(1, 400, time.Second) {
		t.Errorf("runs: %+v", runs)
	}
	for _, want := range []string{"│ calls per TTL", "in broken, which is 2 of 2 modes: "} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("not printed: %q in:\n%s", want, out.stderr)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), `role="alert">Ended early`) {
		t.Errorf("the page does not say that the gallery ended early: %v", err)
	}
}

func TestTheGalleryRefusesBadInputAtOnce(t *testing.T) {
	out := run(t.Context(), t, nil, "gallery", "--modes", "fixed,slow", "--rate", "0", "--each", "soon")
	equal(t, "exit code", out.code, cli.ExitUsage)
	for _, want := range []string{`there is no mode "slow": want `, `--rate "0": `, `--each "soon": `} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("not printed: %q in:\n%s", want, out.stderr)
		}
	}
}
