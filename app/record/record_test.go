package record_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cachelab/app/facts"
	"cachelab/app/record"
)

func save(t *testing.T, folder, id, mode string, started time.Time) {
	t.Helper()
	if err := record.Save(folder, record.Record{Run: facts.Run{ID: id, Mode: mode, Started: started}, Missed: 7}); err != nil {
		t.Fatal(err)
	}
}

func TestTheNewestRunIsLoadedAndEachModeOfALiveOne(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "runs")
	if _, err := record.Load(folder, ""); !errors.Is(err, record.ErrNone) {
		t.Errorf("without a folder: %v", err)
	}
	now := time.Now()
	save(t, folder, "fixed-1", "fixed", now)
	save(t, folder, "live-1", "broken", now.Add(time.Second))
	save(t, folder, "live-1", "fixed", now.Add(2*time.Second))
	for id, modes := range map[string]int{"": 2, "live-1": 2, "fixed-1": 1} {
		all, err := record.Load(folder, id)
		if err != nil || len(all) != modes || all[0].Missed != 7 {
			t.Errorf("%q: %d records, %v, want %d", id, len(all), err, modes)
		}
	}
	if _, err := record.Load(folder, "fixed-2"); !errors.Is(err, record.ErrNone) {
		t.Errorf("an unknown run: %v", err)
	}
}

func TestADamagedRecordIsNamed(t *testing.T) {
	folder := t.TempDir()
	save(t, folder, "fixed-1", "fixed", time.Now())
	save(t, folder, "fixed-2", "fixed", time.Now().Add(time.Second))
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q, %v, want the two records and nothing else", files, err)
	}
	for _, text := range []string{"", `{"run": {"run": "fixed-`, "[]"} {
		if err := os.WriteFile(files[1], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		want := "the record " + files[1] + " is damaged: "
		if _, err := record.Load(folder, ""); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if all, err := record.Load(folder, "fixed-1"); err != nil || len(all) != 1 {
			t.Errorf("the run beside it: %v, %v", all, err)
		}
	}
}

func TestOnlyTheOldestRecordsGoAndNobodyElsesFiles(t *testing.T) {
	folder := t.TempDir()
	foreign := []string{"20200101-000000.000.json", "a.json", "zz.json", "notes.txt"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Now()
	for i := range 205 {
		save(t, folder, fmt.Sprintf("fixed-%d", i), "fixed", started.Add(time.Duration(i)*time.Second))
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 200+len(foreign) {
		t.Errorf("%d files, %v, want 200 records and %d others", len(entries), err, len(foreign))
	}
	if all, err := record.Load(folder, ""); err != nil || all[0].Run.ID != "fixed-204" {
		t.Errorf("the newest: %v, %v", all, err)
	}
	if _, err := record.Load(folder, "fixed-4"); err == nil {
		t.Error("the fifth oldest of 205 is still there")
	}
	if _, err := record.Load(folder, "fixed-5"); err != nil {
		t.Error(err)
	}
}
