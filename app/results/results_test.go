package results_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/redisstore"
	"cachelab/app/results"
	"cachelab/telemetry"
)

var begin = results.Start{Run: "rounds-1", Mode: "fixed", Scenario: "rounds", Redis: "embedded", Workers: 24, TTL: 2 * time.Second,
	Settings: []results.Setting{{Name: "workers", Value: "24", From: "default"}}}

// write writes the responses of processes, a file for each, and the end into the first.
func write(t testing.TB, processes [][]herd.Response, end func(*results.Run)) (files []string) {
	t.Helper()
	folder := t.TempDir()
	for i, responses := range processes {
		name := filepath.Join(folder, fmt.Sprintf("%d.jsonl", i))
		w, err := results.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		run := w.Begin(begin, results.This(0))
		for _, r := range responses {
			run.Keep(r)
		}
		if i == 0 && end != nil {
			end(run)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	return files
}

// whole reads files that hold one run.
func whole(t testing.TB, files ...string) results.Folded {
	t.Helper()
	runs, err := results.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	return runs[0]
}

// some are the responses of a small run. Moments and errors collide.
func some(random *rand.Rand, process, rounds, workers int) (all []herd.Response) {
	began := time.Now()
	n := random.IntN
	at := func() time.Time { return began.Add(time.Duration(1+n(40)) * time.Millisecond) }
	fail := func() error {
		if n(8) > 0 {
			return nil
		}
		return fmt.Errorf("error %d", n(3))
	}
	outcomes := cache.Outcomes()
	for round := range rounds {
		for worker := range workers {
			r := herd.Response{Worker: herd.Worker{Round: round + 1, Number: process*workers + worker + 1}, At: at(),
				Elapsed: time.Duration(n(20)) * time.Millisecond, Err: fail(), Redundant: n(2), Repeated: n(2)}
			r.Outcome, r.Waited = outcomes[n(len(outcomes))], time.Duration(n(2))
			r.Counts = cache.Counts{Hits: n(3), Misses: n(3), Held: n(2), BackendCalls: n(2), SetsAbsent: n(2), SetsReplaced: n(2)}
			r.Sent = cache.Sent{Get: n(4), Set: n(2)}
			r.Errors = cache.Errors{Get: fail(), Lock: fail(), Set: fail(), Unlock: fail(), Load: fail()}
			if n(3) == 0 {
				r.Loaded = at()
			}
			if n(2) == 0 {
				r.Answered = began.Add(-time.Duration(n(3000)) * time.Millisecond)
			}
			all = append(all, r)
		}
	}
	return all
}

func TestTheLedgerIsTheSameForAnySplitAndOrderOfLines(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	processes := [][]herd.Response{some(random, 0, 3, 8), some(random, 1, 3, 8)}
	for i := 0; i < 24; i += 8 {
		processes[1][i].Work = herd.Refresh
	}
	files := write(t, processes, func(r *results.Run) {
		r.End(herd.Ledger{Sum: herd.Sum{Requests: 45, Works: 3}}, facts.Details{Started: time.Now(), Duration: time.Second})
	})
	want := whole(t, files...)
	if want.Details.Err != nil || want.Ledger.Works != 3 || want.Ledger.Rounds != 3 || len(want.Ledger.FirstErrors()) != 6 || want.Ledger.WakeLag.Max == 0 || want.Ledger.Age.Max == 0 {
		t.Fatalf("the run shows nothing: %+v", want.Ledger)
	}
	var lines [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))...)
	}
	for i := range lines {
		lines[i] = append(bytes.TrimSuffix(lines[i], []byte("\n")), '\n')
	}
	folder := t.TempDir()
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		parts := make([][]byte, 1+random.IntN(4))
		for _, line := range lines {
			i := random.IntN(len(parts))
			parts[i] = append(parts[i], line...)
		}
		var split []string
		for i, part := range parts {
			if len(part) == 0 {
				continue
			}
			name := filepath.Join(folder, fmt.Sprint(i))
			if err := os.WriteFile(name, part, 0o600); err != nil {
				t.Fatal(err)
			}
			split = append(split, name)
		}
		if got := whole(t, split...); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got\n%+v\nwant\n%+v", seed, got, want)
		}
	}
}

// fill sets each number and text below v to something else than 0.
func fill(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Now().Add(time.Duration(*n) * time.Second)))
	case v.Type() == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(fmt.Errorf("error %d", *n)))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case v.Kind() == reflect.String:
		v.SetString("filled")
	case v.CanInt():
		v.SetInt(int64(*n))
	}
}

func TestNothingOfAResponseIsLostButItsValue(t *testing.T) {
	var full herd.Response
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	full.Result.Outcome, full.Worker.Process = cache.Filled, 0
	for _, r := range []herd.Response{full, {Worker: herd.Worker{Round: 1, Number: 1}, At: time.Now(), Result: cache.Result{Outcome: cache.Hit}}} {
		direct := herd.NewFold(begin.Workers, begin.TTL)
		direct.Add(r)
		want := facts.NewRun(direct.Ledger(), facts.Details{})
		l := whole(t, write(t, [][]herd.Response{{r}}, nil)...).Ledger
		got := facts.NewRun(l, facts.Details{})
		got.Overhead, want.Overhead = 0, 0
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(l.Sum, direct.Ledger().Sum) || l.Age != direct.Ledger().Age {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
	}
}

func TestTheEndIsKept(t *testing.T) {
	d := facts.Details{ID: begin.Run, Mode: begin.Mode, Scenario: begin.Scenario, Redis: begin.Redis, BackendPeak: 7,
		RedisCommands: facts.RedisCommands{Commands: redisstore.Commands{Get: 1, Set: 2, Eval: 3, Del: 4}, Standing: redisstore.Exact},
		Spans:         telemetry.SpanCounts{Ended: 3, Exported: 2, Dropped: 1}, TraceIDs: [][]string{{"a", "b"}, {"c"}},
		Verdict: herd.Verdict{OK: true, Invariant: true, Text: "well"}, Err: errors.New("interrupted"), Started: time.Now().Round(0), Duration: 5 * time.Second}
	f := herd.NewFold(begin.Workers, begin.TTL)
	responses := some(rand.New(rand.NewPCG(2, 0)), 0, 2, 24)
	responses[3].Work = herd.Refresh
	for _, r := range responses {
		f.Add(r)
	}
	l := f.Ledger()
	l.Expiring, l.NotSent = 3*time.Second, 5
	folded := whole(t, write(t, [][]herd.Response{responses}, func(r *results.Run) { r.End(l, d) })...)
	if got, want := text(t, folded.Run()), text(t, facts.NewRun(l, d)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func text(t *testing.T, r facts.Run) string {
	var b strings.Builder
	if err := facts.WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestARunOfWhichLinesAreMissingIsNotOK(t *testing.T) {
	responses := [][]herd.Response{some(rand.New(rand.NewPCG(1, 0)), 0, 1, 8), some(rand.New(rand.NewPCG(1, 0)), 1, 1, 8)}
	files := write(t, responses, func(r *results.Run) {
		r.End(herd.Ledger{Sum: herd.Sum{Requests: 16}}, facts.Details{Verdict: herd.Verdict{OK: true}})
	})
	if run := whole(t, files...).Run(); !run.Verdict.OK || run.Error != "" {
		t.Errorf("the whole run: %+v, %s", run.Verdict, run.Error)
	}
	run := whole(t, files[0]).Run()
	if run.Verdict.OK || run.Error != "the files do not hold the whole run: 8 of 16 responses are missing" {
		t.Errorf("half of it: %+v, %s", run.Verdict, run.Error)
	}
	run = whole(t, files[1]).Run()
	if run.Verdict.OK || run.Error != "the files do not hold the whole run: its end is missing" || run.RedisCommands.Standing != redisstore.NotAvailable {
		t.Errorf("the other half: %+v, %s, %s", run.Verdict, run.Error, run.RedisCommands.Standing)
	}
}

func TestBadFilesAreToldByFileAndLine(t *testing.T) {
	const run = `{"t":"run","format":1,"run":"a","mode":"fixed","workers":1,"ttl":1}` + "\n"
	const process = `{"t":"process","p":"x","run":"a","mode":"fixed"}` + "\n"
	const response = `{"t":"response","p":"x","r":1,"w":1,"o":"hit","at":1}` + "\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty":           {"", " is empty"},
		"something else":  {"hello\n", ":1: no line of a results file, or one that is cut off: "},
		"JSON of a run":   {"{\n  \"run\": \"a\"\n}\n", ":1: no line of a results file, or one that is cut off: "},
		"cut off":         {run + process + response + response[:20], ":4: no line of a results file, or one that is cut off: "},
		"a wrong type":    {run + `{"t":"response","p":1}` + "\n", ":2: no line of a results file: "},
		"unknown line":    {run + `{"t":"thing"}` + "\n", `:2: a line of type "thing", which this version does not know`},
		"newer":           {strings.Replace(run, "1", "2", 1), ":1: format 2, and this version knows format 1"},
		"no worker":       {run + process + strings.Replace(response, `"w":1,`, "", 1), ":3: a response without its process, round, worker or outcome"},
		"odd outcome":     {run + process + strings.Replace(response, "hit", "miss", 1), ":3: a response without its process, round, worker or outcome"},
		"twice":           {run + process + response + process, ":4: process x is there twice: was a file given twice?"},
		"no process line": {run + response, ":2: the files do not hold the whole run: the line of process x is in none of them"},
		"no run line":     {process + response, ":1: the files do not hold the whole run: the line of run a, fixed is in none of them"},
		"far below":       {run + process + strings.Repeat(response, 4321) + "hello\n" + strings.Repeat(response, 2000) + "hello\n", ":4324: no line of a results file"},
		"nameless run":    {`{"t":"run","format":1}` + "\n", ":1: a run without its id, mode, workers or TTL"},
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := results.Read(file); err == nil || !strings.HasPrefix(err.Error(), "read the results: "+file+test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	if _, err := results.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestRoundsThatAreOverOutliveTheirProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "killed.jsonl")
	w, err := results.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	run := w.Begin(begin, results.This(0))
	for _, r := range some(rand.New(rand.NewPCG(1, 0)), 0, 3, 8) {
		run.Keep(r)
	}
	if l := whole(t, name).Ledger; l.Rounds != 2 || l.Requests != 16 { // nobody has closed the file
		t.Errorf("%d requests in %d rounds", l.Requests, l.Rounds)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskIsToldAtTheEnd(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here: ", err)
	}
	w, err := results.Create("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	run := w.Begin(begin, results.This(0))
	for range 10_000 {
		run.Keep(herd.Response{})
	}
	if err := w.Close(); err == nil || !strings.HasPrefix(err.Error(), "write the results: ") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutAFileNothingIsKept(t *testing.T) {
	var w *results.Writer
	run := w.Begin(begin, results.This(0))
	run.Keep(herd.Response{})
	run.End(herd.Ledger{}, facts.Details{})
}

// BenchmarkFold is 10,000 workers x 10 rounds: files of two processes read, decoded and folded; and the fold alone.
func BenchmarkFold(b *testing.B) {
	processes := make([][]herd.Response, 2)
	for i := range 100_000 {
		process, at := i%2, time.Now().Add(time.Duration(i)*time.Microsecond)
		r := herd.Response{Worker: herd.Worker{Round: 1 + i/10_000, Number: 1 + i%10_000}, At: at, Elapsed: 300 * time.Millisecond, Answered: at.Add(-20 * time.Millisecond)}
		r.Outcome, r.Waited = cache.Waited, 299*time.Millisecond
		r.Counts, r.Sent = cache.Counts{Hits: 1, Misses: 8, Polls: 8, Held: 3}, cache.Sent{Get: 9, Lock: 3}
		if i%10_000 < 2 {
			r.Outcome, r.Loaded = cache.Filled, r.Answered
		}
		processes[process] = append(processes[process], r)
	}
	files := write(b, processes, nil)
	b.Run("files", func(b *testing.B) {
		size := int64(0)
		for _, file := range files {
			about, err := os.Stat(file)
			if err != nil {
				b.Fatal(err)
			}
			size += about.Size()
		}
		b.SetBytes(size)
		for b.Loop() {
			if l := whole(b, files...).Ledger; l.Requests != 100_000 {
				b.Fatalf("%d requests", l.Requests)
			}
		}
	})
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			f := herd.NewFold(10_000, time.Second)
			for _, responses := range processes {
				for _, r := range responses {
					f.Add(r)
				}
			}
			if l := f.Ledger(); l.Requests != 100_000 {
				b.Fatalf("%d requests", l.Requests)
			}
		}
	})
}
