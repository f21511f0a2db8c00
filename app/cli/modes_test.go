package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cachelab/app/cache"
	"cachelab/app/cli"
	"cachelab/app/herd"
	"cachelab/app/modes"
)

// toy is a strategy that is not the lab's: it answers by itself.
type toy struct{}

func (toy) Get(context.Context, string) (*cache.Result, error) {
	return &cache.Result{Value: "a toy", Outcome: cache.Hit}, nil
}

// TestANewStrategyIsOneEntry hands in a table with one strategy more, and finds it wherever modes are shown.
func TestANewStrategyIsOneEntry(t *testing.T) {
	table := append(modes.All(), modes.Mode{
		Name: "toy", Short: "answers by itself", Long: "It neither reads nor calls.", Color: "#123ABC",
		New:   func(modes.Parts) cache.Strategy { return toy{} },
		Judge: func(herd.Ledger) herd.Verdict { return herd.Verdict{OK: true, Text: "a toy never calls"} },
	})
	with := func(args ...string) output { return runWith(t.Context(), t, table, nil, args...) }

	if help := with("--help").stdout; !regexp.MustCompile(`(?m)^  toy +answers by itself$`).MatchString(help) {
		t.Errorf("not in the help:\n%s", help)
	}
	if help := with("toy", "--help").stdout; !strings.HasPrefix(help, "It neither reads nor calls.") {
		t.Errorf("not its own help:\n%s", help)
	}
	if out := with("compare", "--modes", "toy,tyo,toy"); out.code != cli.ExitUsage ||
		!strings.Contains(out.stderr, `there is no mode "tyo": want broken, fixed, coalesced, woken, early, stale or toy`) || !strings.Contains(out.stderr, "toy is there twice") {
		t.Errorf("exit code %d, %s", out.code, out.stderr)
	}

	page := filepath.Join(t.TempDir(), "page.html")
	out := with("compare", "--modes", "fixed,toy,broken", "--redis", "embedded", "--telemetry", "off", "--quiet", "--workers", "4", "--rounds", "1",
		"--backend-latency", "20ms", "--report", page)
	equal(t, "exit code", out.code, cli.ExitOK)
	for _, line := range []string{
		`│ +│ +fixed │ +toy │ +broken │`,
		`│ backend calls +│ +1 │ +0 │ +4 │`,
		`verdict: ok, a toy never calls`,
	} {
		if !regexp.MustCompile(line).MatchString(out.stdout) {
			t.Errorf("no line %s in:\n%s", line, out.stdout)
		}
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a toy never calls", "answers by itself", `style="--mode: #123ABC"`, `"color":"#123ABC"`} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}
