package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cachelab/app/cli"
	"cachelab/telemetry/otlptest"
)

// The JSON of a run and that of its folded file are the same text.
func TestFoldTellsTheSameAsTheRun(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"broken":            "broken --rounds 2 --ttl 300ms --ttl-jitter 20%",
		"fixed with errors": "fixed --rounds 3 --ttl 300ms --backend-fail 2",
		"load":              "load --rounds 2 --workers 200 --ttl 500ms --quiet",
		"live":              "live --each 1s --for 2s --ttl 300ms --backend-latency 100ms",
		"open traffic":      "live --rate 200 --each 1s --for 2s --ttl 300ms --backend-latency 100ms",
		"gallery":           "gallery --modes broken,fixed --each 1s --ttl 300ms --backend-latency 100ms",
		"compare":           "compare --rounds 1 --ttl 300ms",
		"a drill":           "drill backend-error",
		"a drill's outage":  "drill lost-redis",
		"a verdict not ok":  "fixed --rounds 2 --ttl 300ms --lock-ttl 50ms --backend-latency 200ms",
		"one worker":        "fixed --rounds 1 --workers 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := otlptest.Start(t)
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
			file := filepath.Join(t.TempDir(), "results.jsonl")
			was := run(t.Context(), t, env, append(strings.Fields(args), "--redis", "embedded", "--telemetry", "on", "--json", "-", "--results", file)...)
			folded := run(t.Context(), t, nil, "fold", file, "--json", "-")
			equal(t, "exit code", folded.code, was.code)
			if folded.stdout != was.stdout || was.stdout == "" {
				t.Errorf("the run told\n%s\nfold told\n%s%s", was.stdout, folded.stdout, folded.stderr)
			}
			for line := range strings.Lines(was.stderr) {
				if strings.HasPrefix(line, "  latency ") || strings.HasPrefix(line, "verdict: ") || strings.HasPrefix(line, "summary of ") {
					equal(t, "is in fold's summary: "+line, strings.Contains(folded.stderr, line), true)
				}
			}
		})
	}
}

func TestFoldOfAnInterruptedRunTellsTheSame(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "results.jsonl")
	was := runUntil(ctx, t, nil, regexp.MustCompile(`r2 w\d+ BACKEND CALL`), cancel, "fixed", "--ttl", "300ms", "--redis", "embedded",
		"--telemetry", "off", "--json", "-", "--results", file)
	equal(t, "exit code", was.code, cli.ExitFailed)
	folded := run(t.Context(), t, nil, "fold", file, "--json", "-")
	equal(t, "exit code", folded.code, cli.ExitVerdict)
	if r := decode(t, folded.stdout); folded.stdout != was.stdout || r.Rounds != 2 || r.Error == "" || r.Verdict.OK {
		t.Errorf("the run told\n%s\nfold told\n%s%s", was.stdout, folded.stdout, folded.stderr)
	}
}

func TestFoldOfSeveralRunsIsATable(t *testing.T) {
	t.Parallel()
	keep := func(args string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "results.jsonl")
		if out := run(t.Context(), t, nil, append(strings.Fields(args), "--redis", "embedded", "--telemetry", "off", "--quiet", "--results", file)...); out.code != cli.ExitOK {
			t.Fatal(out.stderr)
		}
		return file
	}
	broken, fixed := keep("broken --rounds 1"), keep("fixed --rounds 1")
	page := filepath.Join(t.TempDir(), "page.html")
	out := run(t.Context(), t, nil, "fold", fixed, broken, "--quiet", "--report", page)
	equal(t, "exit code", out.code, cli.ExitOK)
	if !strings.Contains(out.stdout, "│ backend calls    │       50 │        1 │ 50.0 x │") || strings.Contains(out.stdout, "summary of") {
		t.Errorf("printed:\n%s", out.stdout)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "<title>Cache Lab: broken and fixed</title>") || !strings.Contains(string(text), "cachelab fold ") {
		t.Errorf("the page: %v\n%.300s", err, text)
	}
	drills := run(t.Context(), t, nil, "fold", keep("drill cold-start"), keep("drill cold-start"))
	if !strings.Contains(drills.stdout, "│ drill ") || strings.Count(drills.stdout, "│ cold-start │") != 2 {
		t.Errorf("printed:\n%s", drills.stdout)
	}
}

func TestFoldSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.jsonl")
	if err := os.WriteFile(file, []byte("{}\nhello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"fold", cli.ExitUsage, "cachelab: fold which files? A run keeps them with --results FILE\n"},
		{"fold " + file, cli.ExitFailed, "cachelab: read the results: " + file + `:1: a line of type "", which this version does not know` + "\n"},
		{"fold /nowhere", cli.ExitFailed, "cachelab: read the results: open /nowhere: no such file or directory\n"},
		{"fixed --results -", cli.ExitUsage, `cachelab: --results "-": want the name of a file` + "\n"},
		{"fixed --results x --report x", cli.ExitUsage, `cachelab: --report "x": --results writes to the same file` + "\n"},
		{"fixed --json x --results x", cli.ExitUsage, `cachelab: --results "x": --json writes to the same file` + "\n"},
		{"fixed --results /nowhere/x", cli.ExitUsage, `cachelab: --results "/nowhere/x": open /nowhere/x: no such file or directory` + "\n"},
	} {
		out := run(t.Context(), t, nil, strings.Fields(test.args)...)
		equal(t, test.args+": exit code", out.code, test.code)
		equal(t, test.args, strings.HasPrefix(out.stderr, test.want), true)
		if t.Failed() {
			t.Fatal(out.stderr)
		}
	}
}
