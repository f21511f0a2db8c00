package deploy

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// make test, race and lint run every module but those that only pin a tool or a server.
func TestMakeRunsEveryModule(t *testing.T) {
	var want []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && slices.Contains([]string{"../.ci", "../.git", "../deploy/servers"}, path) {
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "go.mod" {
			want = append(want, filepath.Dir(strings.TrimPrefix(path, "../")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(find(t, "../Makefile", `(?m)^MODULES := (.+)$`))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("make runs the modules %v, want %v", got, want)
	}
}
