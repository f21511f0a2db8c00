package cli_test

import (
	"context"
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/telemetry/otlptest"
)

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("not there: %q", want)
		}
	}
}

// roundOf is the round that the page draws of a run.
func roundOf(t *testing.T, text string, run int) facts.Waterfall {
	t.Helper()
	block := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(text)
	if block == nil {
		t.Fatal("no data on the page")
	}
	var data struct {
		Runs []struct{ Rounds []facts.Waterfall }
	}
	if err := json.Unmarshal([]byte(block[1]), &data); err != nil {
		t.Fatal(err)
	}
	if len(data.Runs) <= run || len(data.Runs[run].Rounds) != 1 {
		t.Fatalf("no round of run %d in the data", run)
	}
	return data.Runs[run].Rounds[0]
}

func winners(r facts.Waterfall) (n int) {
	for _, row := range r.Rows {
		if row.Winner {
			n++
		}
	}
	return n
}

func TestTheReportOfACompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, runs := filepath.Join(dir, "report.html"), filepath.Join(dir, "runs.json")
	const key = `a<b>&"c"'d`
	env := map[string]string{"CACHELAB_ROUNDS": "2", "CACHELAB_REDIS": "embedded"}
	out := run(t.Context(), t, env, "compare", "--report", page, "--json", runs, "--key", key, "--ttl", "800ms", "--workers", "20",
		"--backend-capacity", "5", "--backend-latency", "100ms", "--telemetry", "off")
	equal(t, "exit code", out.code, cli.ExitOK)
	contains(t, out.stdout, "report: "+page+"\n", "round 1 of broken: 20 backend calls, the last answer after ", "round 1 of fixed: 1 backend call, the last answer after ")
	equal(t, "waterfalls", strings.Count(out.stdout, "backend call   "), 2)
	text := readFile(t, page)

	var parsed []facts.Run
	if err := json.Unmarshal([]byte(readFile(t, runs)), &parsed); err != nil {
		t.Fatal(err)
	}
	contains(t, text, `<tr data-key="backend_calls"><th scope="row">backend_calls</th><td>40</td><td>2</td></tr>`,
		"<td>"+parsed[0].ID+"</td><td>"+parsed[1].ID+"</td>", html.EscapeString(parsed[0].Verdict.Text),
		"every worker that misses calls the backend: the thundering herd")
	broken, fixed := roundOf(t, text, 0), roundOf(t, text, 1)
	equal(t, "peak of broken", broken.Peak, 20)
	equal(t, "peak of fixed", fixed.Peak, 1)
	equal(t, "winners", winners(broken)+winners(fixed), 1)
	equal(t, "rows", len(broken.Rows)+len(fixed.Rows), 40)
	equal(t, "colours", strings.Count(text, `"color":"#D55E00"`), 1)
	shown := html.UnescapeString(text)
	contains(t, shown, "cachelab compare --workers=20 --rounds=2 --key='a<b>&\"c\"'\\''d' --ttl=800ms ", " --redis=embedded ", " --report="+page,
		`<th scope="row">key</th><td>`+key+`</td><td>--key</td>`, `<th scope="row">rounds</th><td>2</td><td>CACHELAB_ROUNDS</td>`,
		`<th scope="row">wait-timeout</th><td>11.2s</td><td>default</td>`)
	if strings.Contains(text, "Where to look") {
		t.Error("links, although nothing was delivered")
	}
}

func TestTheDefaultReportIsSmall(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "report.html")
	out := run(t.Context(), t, nil, "compare", "--redis", "embedded", "--telemetry", "off", "--report", page, "--quiet", "--ttl", "400ms",
		"--backend-latency", "50ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	if n := len(readFile(t, page)); n > 150_000 {
		t.Errorf("the report of 50 workers x 5 rounds has %d bytes", n)
	}
	if strings.Contains(out.stdout, "round 1 of ") {
		t.Error("a waterfall, although quiet")
	}
}

func TestTheReportOfLoadShowsTheWinnerWhereverItIs(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	out := run(t.Context(), t, nil, "load", "--workers", "1200", "--redis", "embedded", "--telemetry", "off", "--report", page, "--ttl", "1s", "--rounds", "1")
	equal(t, "exit code", out.code, cli.ExitOK)
	text := readFile(t, page)
	round := roundOf(t, text, 0)
	equal(t, "winners", winners(round), 1)
	equal(t, "rows", len(round.Rows), 60)
	equal(t, "workers", round.Workers, 1200)
	if round.Omitted == 0 || len(text) > 150_000 {
		t.Errorf("%d bytes, %d spans left out", len(text), round.Omitted)
	}
}

func TestTheReportLinksToWhatWasDelivered(t *testing.T) {
	receiver := otlptest.Start(t)
	page := filepath.Join(t.TempDir(), "report.html")
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "CACHELAB_JAEGER_URL": "http://jaeger.example:1234/"}
	out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "on", "--report", page, "--json", "-", "--quiet", "--rounds", "1")
	equal(t, "exit code", out.code, cli.ExitOK)
	r := decode(t, out.stdout)
	contains(t, readFile(t, page), `<a href="http://jaeger.example:1234/trace/`+r.TraceIDs[0][0]+`">fixed, round 1 in Jaeger</a>`,
		`<a href="http://127.0.0.1:3000/d/thundering-herd?from=`)
	// Recorded and exported are the same spans.
	equal(t, "received", len(receiver.Spans()), r.Spans.Ended)
}

func TestAReportThatCannotBeWrittenIsSaidBeforeTheRun(t *testing.T) {
	dir := t.TempDir()
	same := filepath.Join(dir, "same")
	for want, args := range map[string][]string{
		`--report "/nowhere/report.html": open /nowhere/report.html: no such file`: {"--report", "/nowhere/report.html"},
		`--report "` + dir + `": open ` + dir + `: is a directory`:                 {"--report", dir},
		`--report "-": want the name of a file`:                                    {"--report", "-"},
		`--report "` + same + `": --json writes to the same file`:                  {"--report", same, "--json", same},
	} {
		out := run(t.Context(), t, nil, append([]string{"fixed", "--redis", "embedded"}, args...)...)
		equal(t, want+": exit code", out.code, cli.ExitUsage)
		equal(t, want+": stdout", out.stdout, "")
		contains(t, out.stderr, want)
	}
}

func TestTheReportOfAnInterruptedRun(t *testing.T) {
	for _, test := range []struct{ command, want string }{
		{"fixed", "Ended early; this is what there is: in round 1: context canceled"},
		{"compare", "Ended early, with 1 of 2 runs made: in round 1: context canceled"},
	} {
		t.Run(test.command, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			page := filepath.Join(t.TempDir(), "report.html")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			timer := time.AfterFunc(2*time.Second, cancel) // in the first backend calls, which take 10 s
			defer timer.Stop()
			out := run(ctx, t, nil, test.command, "--redis", server.URL(), "--telemetry", "off", "--quiet", "--report", page, "--backend-latency", "10s",
				"--backend-jitter", "0")
			equal(t, "exit code", out.code, cli.ExitFailed)
			contains(t, out.stdout, "report: "+page)
			text := readFile(t, page)
			contains(t, text, test.want, `<tr data-key="error">`)
			equal(t, "rows", len(roundOf(t, text, 0).Rows), 50)
		})
	}
}

// A waterfall follows the run, unless it is to be quiet.
func TestARunEndsWithAWaterfall(t *testing.T) {
	out := run(t.Context(), t, nil, "fixed", "--redis", "embedded", "--telemetry", "off", "--workers", "5", "--rounds", "1", "--backend-latency", "50ms")
	equal(t, "exit code", out.code, cli.ExitOK)
	if !regexp.MustCompile(`(?s)round 1/1: .*\nround 1 of fixed: .*\n  w\d\d ★ +▇+ .*filled .*\n  w\d\d +[─•]+ .*waited .*\nsummary of rounds-\d+-\d+-\w+, fixed\n`).MatchString(out.stdout) {
		t.Errorf("printed:\n%s", out.stdout)
	}
}

// The live line is there on a terminal only, so this makes one with script(1).
func TestTheLiveLineOnATerminal(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("no script(1) here, which makes a terminal (Debian: bsdutils)")
	}
	binary := filepath.Join(t.TempDir(), "cachelab")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "cachelab/app").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.CommandContext(t.Context(), script, "-qec",
		"stty cols 80 rows 24; "+binary+" fixed --redis embedded --telemetry off --records= --quiet --rounds 2 --ttl 300ms --backend-latency 800ms", "/dev/null")
	command.Env = []string{"TERM=xterm-256color", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(out)
	contains(t, text, " 0/2 rounds · 49 waiting · 1 in flight · 1 call so far", " 1/2 rounds · 49 waiting · 1 in flight · 2 calls so far",
		"round 1/2: 50 workers, 1 backend call", "\r\x1b[Jfixed ━━━━━━━━──────── 1/2 rounds") // the line is drawn over itself
	if strings.Contains(text, "…") {
		t.Error("the live line is cut at 80 columns")
	}
}

func TestReadmePicturesAreThereAndSmall(t *testing.T) {
	pictures := regexp.MustCompile(`(?:src|srcset|href)="([^"]+\.png)"`).FindAllStringSubmatch(document(t, firstReadme), -1)
	if len(pictures) < 3 {
		t.Fatalf("found %d pictures", len(pictures))
	}
	for _, picture := range pictures {
		about, err := os.Stat(filepath.Join(top, picture[1]))
		if err != nil || about.Size() > 150_000 {
			t.Errorf("%s: %v, %v", picture[1], about, err)
		}
	}
}
