package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cli"
	"cachelab/app/facts"
	"cachelab/app/internal/redistest"
	"cachelab/app/modes"
	"cachelab/app/web"
)

// aPage is the program as it serves the page.
type aPage struct {
	t   *testing.T
	url string
	end func() output // as Ctrl-C does
}

// openPage runs "page" with these flags at a free port, until the test ends it, or is over.
func openPage(t *testing.T, env map[string]string, flags ...string) aPage {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr, ended := capture(t), capture(t), make(chan output, 1)
	go func() {
		code := cli.Main(ctx, cli.Process{
			Args:      append([]string{"page", "--listen", "127.0.0.1:0", "--telemetry", "off"}, flags...),
			LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
			Stdout:    stdout, Stderr: stderr, Modes: modes.All(),
		})
		ended <- output{code, read(t, stdout), read(t, stderr)}
	}()
	end := func() output {
		cancel()
		out := <-ended
		ended <- out
		return out
	}
	t.Cleanup(func() { end() })
	address := regexp.MustCompile(`http://\S+/`)
	for !address.MatchString(read(t, stdout)) {
		select {
		case out := <-ended:
			ended <- out
			t.Fatalf("it ended with %d: %s", out.code, out.stderr)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return aPage{t, strings.TrimSuffix(address.FindString(read(t, stdout)), "/"), end}
}

// said is what the page answers to a choice.
type said struct {
	Command  string
	Warnings []string
	Faults   []web.Fault
}

func (p aPage) post(path string, what any) (status int, answer said) {
	p.t.Helper()
	body, err := json.Marshal(what)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.Post(p.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, answer
}

// await follows the feed until the state is as wanted, and returns it.
func (p aPage) await(what string, wanted func(pageState) bool) pageState {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/feed", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	decoder := newFeedReader(response)
	for {
		event, data, err := decoder.next()
		if err != nil {
			p.t.Fatalf("waiting for %s: %v", what, err)
		}
		var s pageState
		if event != "state" {
			continue
		}
		if err := json.Unmarshal(data, &s); err != nil {
			p.t.Fatal(err)
		}
		if wanted(s) {
			return s
		}
	}
}

type pageState struct {
	Show    int
	Running bool
	Error   string
	Runs    []struct {
		Mode  string
		Facts facts.Run
	}
	Result *struct {
		Data struct {
			Runs []struct{ Facts json.RawMessage }
		}
	}
}

func over(show int) func(pageState) bool {
	return func(s pageState) bool { return s.Show == show && !s.Running }
}

// quick is a choice that does not last.
func quick(kind string, strategies ...string) web.Choice {
	return web.Choice{Kind: kind, Strategies: strategies, Settings: map[string]string{"backend-latency": "50ms", "ttl": "300ms", "rounds": "2"}}
}

// runsOf are the runs' JSON as the page has it.
func (p aPage) runsOf() (runs []json.RawMessage) {
	p.t.Helper()
	response, err := http.Get(p.url + "/runs.json")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&runs); err != nil {
		p.t.Fatal(err)
	}
	return runs
}

func TestARunOfThePageIsWhatItsCommandMakes(t *testing.T) {
	t.Parallel()
	p := openPage(t, nil)
	status, answer := p.post("/start", quick("rounds", "broken", "fixed"))
	equal(t, "status", status, http.StatusAccepted)
	equal(t, "the command", answer.Command, "cachelab compare --rounds=2 --ttl=300ms --backend-latency=50ms --redis=embedded --telemetry=off --modes=broken,fixed")
	state := p.await("the end", over(1))
	runs := p.runsOf()
	if len(runs) != 2 || len(state.Result.Data.Runs) != 2 || state.Error != "" {
		t.Fatalf("%d runs, the page has %d, and says %q", len(runs), len(state.Result.Data.Runs), state.Error)
	}
	var made []facts.Run
	for i, text := range runs {
		made = append(made, decode(t, string(text)))
		var onPage, inJSON bytes.Buffer
		_ = json.Compact(&onPage, state.Result.Data.Runs[i].Facts)
		_ = json.Compact(&inJSON, text)
		equal(t, "the numbers of the page", onPage.String(), inJSON.String())
		// What the rounds came to, told after each, is what the ledger has at the end.
		so, end := state.Runs[i].Facts, made[i]
		equal(t, "rounds", so.Rounds, end.Rounds)
		equal(t, "calls", so.BackendCalls, end.BackendCalls)
		equal(t, "expiries", so.Expiries, end.Expiries)
		equal(t, "GET", so.Gets, end.Gets)
		equal(t, "the lock", so.Lock, end.Lock)
		equal(t, "waited", so.Outcomes["waited"], end.Outcomes["waited"])
	}
	equal(t, "calls of broken", made[0].BackendCalls, 100)
	equal(t, "calls of fixed", made[1].BackendCalls, 2)

	// And its command makes the same.
	words := append(strings.Fields(answer.Command)[1:], "--json", "-")
	out := run(t.Context(), t, nil, words...)
	var again []facts.Run
	if err := json.Unmarshal([]byte(out.stdout), &again); err != nil || len(again) != 2 {
		t.Fatalf("%q made %s, %v", words, out.stdout, err)
	}
	for i := range again {
		equal(t, "mode", again[i].Mode, made[i].Mode)
		equal(t, "calls again", again[i].BackendCalls, made[i].BackendCalls)
		equal(t, "Redis", again[i].Redis, made[i].Redis)
	}
}

// bad are values of each setting of the page that are out of bounds.
var bad = map[string][]string{
	"workers":          {"0", "-1", "100001", "1e3", "many", ""},
	"processes":        {"-1", "65", "many"},
	"rounds":           {"0", "1000001", "x"},
	"rate":             {"0", "-1", "10001", "NaN", "fast"},
	"each":             {"99ms", "25h", "20"},
	"for":              {"99ms", "25h", "20"},
	"ttl":              {"0s", "25h", "3", "-1s"},
	"ttl-jitter":       {"-0.1", "1.1", "NaN", "101%"},
	"lock-ttl":         {"0", "25h", "x"},
	"wait-timeout":     {"0s", "25h", "x"},
	"backend-latency":  {"-1ms", "25h", "250"},
	"backend-jitter":   {"-1", "2", "x"},
	"backend-capacity": {"-1", "100001", "x"},
	"backend-fail":     {"0", "5-2", "101%", "some"},
	"seed":             {"-1", "x"},
	"beta":             {"0", "101", "x"},
	"early-lock":       {"perhaps"},
	"grace":            {"0s", "25h", "x"},
}

func TestThePageRefusesWhatTheCommandLineRefuses(t *testing.T) {
	t.Parallel()
	p := openPage(t, nil)
	form := formOf(t, p)
	for _, kind := range form.Kinds {
		all := web.Choice{Kind: kind.Name, Settings: map[string]string{}}
		if kind.Strategy == "" {
			all.Strategies = []string{"fixed"}
		}
		path := map[string]string{"rounds": "fixed", "traffic": "gallery"}[kind.Name]
		for _, field := range kind.Fields {
			values, known := bad[field.Name]
			if !known {
				t.Errorf("nobody says what is out of the bounds of %s", field.Name)
				continue
			}
			if field.Want == "" {
				t.Errorf("the page does not say which values %s takes", field.Name)
			}
			for _, value := range values {
				one := all
				one.Settings = map[string]string{field.Name: value}
				status, answer := p.post("/start", one)
				if status != http.StatusUnprocessableEntity || len(answer.Faults) != 1 || answer.Faults[0].Field != field.Name {
					t.Errorf("%s: %s %q: %d, %+v", kind.Name, field.Name, value, status, answer.Faults)
					continue
				}
				if path == "" {
					continue
				}
				out := run(t.Context(), t, nil, path, "--"+field.Name+"="+value)
				if line, _, _ := strings.Cut(out.stderr, "\n"); line != "cachelab: "+answer.Faults[0].Text {
					t.Errorf("the page says %q, the command line %q", answer.Faults[0].Text, line)
				}
			}
			all.Settings[field.Name] = values[0]
		}
		// All faults at once, each at its setting.
		_, answer := p.post("/check", all)
		var named []string
		for _, f := range answer.Faults {
			named = append(named, f.Field)
		}
		slices.Sort(named)
		if len(named) != len(kind.Fields) || len(slices.Compact(named)) != len(kind.Fields) {
			t.Errorf("%s: of %d faults these are told: %q", kind.Name, len(kind.Fields), named)
		}
	}
	for name, wrong := range map[string]web.Choice{
		"kind":       {Kind: "no-such"},
		"strategies": {Kind: "rounds"},
		"redis":      {Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"redis": "redis://192.0.2.1"}},
		"records":    {Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"records": "/tmp"}},
		"report":     {Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"report": "/tmp/x"}},
		"modes":      {Kind: "traffic", Strategies: []string{"fixed"}, Settings: map[string]string{"modes": "all"}},
		"rounds":     {Kind: "traffic", Strategies: []string{"fixed"}, Settings: map[string]string{"rounds": "3"}},
	} {
		status, answer := p.post("/start", wrong)
		if status != http.StatusUnprocessableEntity || len(answer.Faults) != 1 || answer.Faults[0].Field != name {
			t.Errorf("%s: %d, %+v", name, status, answer.Faults)
		}
	}
	for says, strategies := range map[string][]string{
		"want 1 to 4 strategies":                    {"broken", "fixed", "coalesced", "woken", "early"},
		"the promise of early needs traffic":        {"fixed", "early"},
		`there is no mode "none"`:                   {"none"},
		"fixed is there twice":                      {"fixed", "fixed"},
		`the promise of stale needs traffic, not r`: {"stale"},
	} {
		kind := "rounds"
		if len(strategies) == 5 {
			kind = "traffic"
		}
		_, answer := p.post("/check", web.Choice{Kind: kind, Strategies: strategies})
		if len(answer.Faults) != 1 || answer.Faults[0].Field != "strategies" || !strings.Contains(answer.Faults[0].Text, says) {
			t.Errorf("%q: %+v, want %s", strategies, answer.Faults, says)
		}
	}
	// A rule that is broken is no fault.
	_, answer := p.post("/check", web.Choice{Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"lock-ttl": "100ms"}})
	if len(answer.Faults) != 0 || len(answer.Warnings) == 0 || !strings.Contains(answer.Warnings[0], "the lock TTL (100ms) is not longer than a backend call") {
		t.Errorf("a lock that is too short: %+v", answer)
	}
}

// Whoever adds a flag to the runs says whether it is the page's own, a visitor's, or none of both.
func TestThePageHasTheFlagsThatAreMeantForIt(t *testing.T) {
	var names []string
	for _, flag := range cli.FlagsOf("page") {
		names = append(names, flag.Name)
	}
	want := []string{"key", "backend", "redis", "redis-ca", "redis-cert", "redis-key", "redis-sni", "redis-password-file", "telemetry", "jaeger-url", "grafana-url",
		"records", "listen"}
	if !slices.Equal(names, want) {
		t.Errorf("page has the flags %q, want %q: see the lists in webpage.go", names, want)
	}
}

// formOf is the form that the page has.
func formOf(t *testing.T, p aPage) (form web.Form) {
	t.Helper()
	response, err := http.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text.String(), `id="form-data">`)
	data, _, _ := strings.Cut(rest, "</script>")
	if err := json.Unmarshal([]byte(data), &form); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if len(form.Strategies) != len(modes.All()) || len(form.Kinds) < 10 {
		t.Fatalf("the form has %d strategies, %d kinds", len(form.Strategies), len(form.Kinds))
	}
	return form
}

func TestThePagesPortIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out := run(t.Context(), t, nil, "page", "--listen", taken.Addr().String())
	equal(t, "exit code", out.code, cli.ExitFailed)
	want := fmt.Sprintf("cachelab: serve the page: listen tcp %s: bind: address already in use; choose another address with --listen, 127.0.0.1:0 for a free port\n", taken.Addr())
	equal(t, "says", out.stderr, want)
	for _, wrong := range []string{"8041", "localhost", "127.0.0.1:99999", ""} {
		out := run(t.Context(), t, nil, "page", "--listen", wrong)
		equal(t, "exit code", out.code, cli.ExitUsage)
		if !strings.Contains(out.stderr, "want an address with a port, like 127.0.0.1:8041") {
			t.Errorf("%q: %s", wrong, out.stderr)
		}
	}
	out = run(t.Context(), t, map[string]string{"CACHELAB_ROUNDS": "0"}, "page", "--listen", "127.0.0.1:0")
	equal(t, "exit code", out.code, cli.ExitUsage)
	if !strings.Contains(out.stderr, `CACHELAB_ROUNDS "0": want a whole number`) {
		t.Errorf("a variable that is wrong: %s", out.stderr)
	}
}

func TestStopOnThePageReleasesTheLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openPage(t, nil, "--redis", server.URL())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	slow := web.Choice{Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"backend-latency": "30s", "lock-ttl": "1m"}}
	status, _ := p.post("/start", slow)
	equal(t, "status", status, http.StatusAccepted)
	locked := func() bool { return client.Exists(t.Context(), "product:42:price:filling").Val() == 1 }
	for !locked() {
		time.Sleep(5 * time.Millisecond)
	}
	p.post("/stop", struct{}{})
	state := p.await("the end", over(1))
	if !strings.Contains(state.Error, "stopped on the page") {
		t.Errorf("it ended since %q", state.Error)
	}
	if locked() {
		t.Error("the lock is still there")
	}
	stopped := decode(t, string(p.runsOf()[0]))
	equal(t, "released", stopped.Lock.Released, 1)
	equal(t, "verdict", stopped.Verdict.OK, false)

	status, _ = p.post("/start", quick("rounds", "fixed"))
	equal(t, "the next", status, http.StatusAccepted)
	equal(t, "the next ends early", p.await("the end", over(2)).Error, "")
	equal(t, "exit code", p.end().code, cli.ExitOK)
}

func TestARedisThatGoesAwayInARunOfThePage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openPage(t, nil, "--redis", server.URL())
	p.post("/start", web.Choice{Kind: "rounds", Strategies: []string{"broken", "fixed"},
		Settings: map[string]string{"backend-latency": "500ms", "ttl": "300ms", "backend-capacity": "0"}})
	p.await("the first round", func(s pageState) bool { return len(s.Runs) > 0 && s.Runs[0].Facts.Rounds == 1 })
	server.Stop()
	state := p.await("the end", over(1))
	if !strings.Contains(state.Error, server.Addr()) || !strings.Contains(state.Error, "connect: connection refused") {
		t.Errorf("the page says %q", state.Error)
	}
	equal(t, "runs", len(p.runsOf()), 1)
	// Then nothing can start, and the page says why.
	p.post("/start", quick("rounds", "fixed"))
	if state := p.await("the end", over(2)); !strings.Contains(state.Error, server.Addr()) {
		t.Errorf("without a Redis it says %q", state.Error)
	}
	// Until it is back.
	server.Start()
	p.post("/start", quick("rounds", "fixed"))
	equal(t, "with Redis it says", p.await("the end", over(3)).Error, "")
}

func TestCtrlCEndsThePageAndItsRunInOrder(t *testing.T) {
	t.Parallel()
	p := openPage(t, nil)
	p.post("/start", web.Choice{Kind: "rounds", Strategies: []string{"fixed"}, Settings: map[string]string{"backend-latency": "30s"}})
	p.await("the run", func(s pageState) bool { return s.Running && len(s.Runs) == 1 })
	out := p.end()
	equal(t, "exit code", out.code, cli.ExitOK)
	if !strings.Contains(out.stdout, "ended early") {
		t.Errorf("printed:\n%s", out.stdout)
	}
}

func TestTrafficAndDrillsOfThePage(t *testing.T) {
	t.Parallel()
	p := openPage(t, nil)
	status, answer := p.post("/start", web.Choice{Kind: "traffic", Strategies: []string{"broken", "stale"},
		Settings: map[string]string{"backend-latency": "50ms", "ttl": "400ms", "each": "1s", "rate": "200"}})
	equal(t, "status", status, http.StatusAccepted)
	equal(t, "the command", answer.Command, "cachelab gallery --ttl=400ms --backend-latency=50ms --redis=embedded --telemetry=off --modes=broken,stale --each=1s --rate=200")
	state := p.await("the end", over(1))
	runs := p.runsOf()
	if len(runs) != 2 || state.Error != "" {
		t.Fatalf("%d runs, %q", len(runs), state.Error)
	}
	for i, text := range runs {
		end := decode(t, string(text))
		equal(t, "requests", state.Runs[i].Facts.Requests, end.Requests)
		equal(t, "calls", state.Runs[i].Facts.BackendCalls, end.BackendCalls)
		if !end.Verdict.OK || end.Requests < 100 {
			t.Errorf("%s: %d requests, %s", end.Mode, end.Requests, end.Verdict.Text)
		}
	}

	status, answer = p.post("/start", web.Choice{Kind: "backend-error"})
	equal(t, "status", status, http.StatusAccepted)
	equal(t, "the command", answer.Command, "cachelab drill backend-error --redis=embedded --telemetry=off")
	state = p.await("the end", over(2))
	drill := decode(t, string(p.runsOf()[0]))
	if state.Error != "" || drill.Drill != "backend-error" || !drill.Verdict.OK || drill.Workers != 20 {
		t.Errorf("the drill: %q, %+v", state.Error, drill)
	}
}

// Nothing is written to disk unless it is asked for, whatever the environment says of files, which are not the page's.
func TestThePageWritesNothingUnlessItIsAsked(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	env := map[string]string{"CACHELAB_JSON": filepath.Join(dir, "a"), "CACHELAB_RESULTS": filepath.Join(dir, "b"), "CACHELAB_REPORT": "/nowhere/c", "CACHELAB_JOINERS": "2"}
	files := func() (names []string) {
		_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, _ error) error {
			if !entry.IsDir() {
				names = append(names, path)
			}
			return nil
		})
		return names
	}
	p := openPage(t, env)
	p.post("/start", quick("rounds", "fixed"))
	p.await("the end", over(1))
	p.end()
	if found := files(); len(found) != 0 {
		t.Errorf("written: %q", found)
	}
	asked := openPage(t, env, "--records", "kept")
	asked.post("/start", quick("rounds", "fixed"))
	asked.await("the end", over(1))
	asked.end()
	if found := files(); len(found) != 1 || filepath.Base(filepath.Dir(found[0])) != "kept" {
		t.Errorf("with --records written: %q", found)
	}
}
