package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"cachelab/app/cli"
)

const top = "../.."

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var update = flag.Bool("update", false, "write the README's table of flags anew")

func TestReadmeHasTheFlagsAsTheyAre(t *testing.T) {
	checkFlags(t, "| flag | default | meaning |\n| --- | --- | --- |\n", cli.Flags())
	checkFlags(t, "| flag of live | default | meaning |\n| --- | --- | --- |\n", cli.LiveFlags())
}

func checkFlags(t *testing.T, head string, flags []*pflag.Flag) {
	t.Helper()
	text := readme(t)
	before, rest, found := strings.Cut(text, head)
	_, after, found2 := strings.Cut(rest, "\n\n")
	if !found || !found2 {
		t.Fatalf("the README has no table %q", head)
	}
	var table strings.Builder
	for _, f := range flags {
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, value, f.Usage)
	}
	want := before + head + table.String() + "\n" + after
	if *update {
		if err := os.WriteFile(filepath.Join(top, "README.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Errorf("the README's table of flags is stale: go test ./app/cli -run Readme -update\nwant:\n%s", &table)
	}
}

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	text := readme(t)
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1)
	if len(links) < 10 {
		t.Fatalf("found %d links", len(links))
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(top, link[1])); err != nil && !strings.Contains(link[1], "://") {
			t.Errorf("%v", err)
		}
	}
}

func TestReadmeNamesTestsThatExist(t *testing.T) {
	text := readme(t)
	var tests strings.Builder
	files, err := filepath.Glob(top + "/*/*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(source)
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1)
	if len(names) < 10 {
		t.Fatalf("found %d names", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
}
