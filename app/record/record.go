// Package record keeps what each run counted, in a folder of JSON files, so that "verify" can hold it against what
// Jaeger and Prometheus have stored.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cachelab/app/cache"
	"cachelab/app/facts"
)

// keep is how many runs a folder holds; the oldest go.
const keep = 200

// ErrNone is returned when there is no such run.
var ErrNone = errors.New("no run is recorded")

// Record is one run: what was reported, and what only the comparison needs.
type Record struct {
	Run facts.Run `json:"run"`
	// Sent are the Redis commands of the workers, answered or not.
	Sent    cache.Sent `json:"sent"`
	Missed  int        `json:"missed"`  // requests whose first GET found nothing
	Waiters int        `json:"waiters"` // requests that waited for a fill
	Links   int        `json:"links"`   // of all spans
	// Served are the backend calls that the price service counted, and made spans of; -1 if it did not tell.
	Served int `json:"served"`
	// Unsampled are the traces that the sampler left out.
	Unsampled int `json:"unsampled,omitempty"`
	// Masked are the re-checks that found the value and that a drill answered with a miss.
	Masked int `json:"masked,omitempty"`
}

// Save writes the record into the folder, which is made if need be.
func Save(folder string, r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		name := r.Run.Started.UTC().Format("20060102-150405.000") + "_" + r.Run.ID + "_" + r.Run.Mode + ".json"
		err = write(filepath.Join(folder, name), append(text, '\n'))
	}
	if err == nil {
		err = prune(folder)
	}
	if err != nil {
		return fmt.Errorf("record the run for verify: %w", err)
	}
	return nil
}

// write leaves a whole file or none, also when the disk is full or the program is killed.
func write(path string, text []byte) error {
	half := path + ".half"
	err := os.WriteFile(half, text, 0o644)
	if err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
		_ = os.Remove(half)
	}
	return err
}

// Load reads the run with the id, or the newest if the id is empty. A live run has a record for each of its modes.
func Load(folder, id string) ([]Record, error) {
	files, err := list(folder)
	if err != nil {
		return nil, err
	}
	if id == "" && len(files) > 0 {
		id = idOf(files[len(files)-1])
	}
	var records []Record
	for _, file := range files {
		if id == "" || idOf(file) != id {
			continue
		}
		var r Record
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the recorded run: %w", err) // which names the file
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("the record %s is damaged: %w; delete it, and run again or choose another --run", file, err)
		}
		records = append(records, r)
	}
	switch {
	case len(records) > 0:
		return records, nil
	case id != "":
		return nil, fmt.Errorf("%w as %q in %s: a run prints its id, or leave --run out for the newest", ErrNone, id, folder)
	}
	return nil, fmt.Errorf("%w in %s: make one first, like make fixed", ErrNone, folder)
}

// idOf is the run's id in the name of a file.
func idOf(file string) string {
	_, rest, _ := strings.Cut(filepath.Base(file), "_")
	id, _, _ := strings.Cut(rest, "_")
	return id
}

// recordName is what the files are called: the time first, so that their order is the runs'; the mode, because a
// live run has two.
var recordName = regexp.MustCompile(`^\d{8}-\d{6}\.\d{3}_[^_]+_[^_]+\.json$`)

// list returns the records in the folder, the oldest first; none if there is no folder.
func list(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for recorded runs: %w", err)
	}
	var files []string
	for _, e := range entries {
		if recordName.MatchString(e.Name()) { // nothing else in the folder is ours
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files, nil
}

func prune(folder string) error {
	files, err := list(folder)
	if err != nil {
		return err
	}
	for len(files) > keep {
		if err := os.Remove(files[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		files = files[1:]
	}
	return nil
}

// Age is how long ago the run began.
func (r Record) Age() time.Duration { return time.Since(r.Run.Started) }
