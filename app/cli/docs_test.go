package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

func TestReadmeHasEachFlagWithItsDefault(t *testing.T) {
	text := readme(t)
	for _, f := range cli.Flags() {
		row := fmt.Sprintf("| `--%s` | `%s` | %s |\n", f.Name, f.DefValue, f.Usage)
		if f.DefValue == "" {
			row = strings.Replace(row, "``", "", 1)
		}
		if !strings.Contains(text, row) {
			t.Errorf("the README has no row\n%s", row)
		}
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
