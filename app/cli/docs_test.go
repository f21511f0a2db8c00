package cli_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"cachelab/app/cli"
	"cachelab/app/drill"
	"cachelab/app/facts"
	"cachelab/app/modes"
	"cachelab/telemetry"
)

const top = "../.."

// The documents that tests write parts of.
const (
	firstReadme = "README.md"
	appReadme   = "app/README.md"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var update = flag.Bool("update", false, "write the lists and tables of the documents anew")

// checkPart compares what is between head and tail in a document with what it must be.
func checkPart(t *testing.T, name, head, tail, want string) {
	t.Helper()
	before, rest, found := strings.Cut(document(t, name), head)
	part, after, ends := strings.Cut(rest, tail)
	switch {
	case !found || !ends:
		t.Fatalf("%s has nothing between %q and %q", name, head, tail)
	case part == want:
	case *update:
		if err := os.WriteFile(filepath.Join(top, name), []byte(before+head+want+tail+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale: go test ./app/cli -run Documents -update\nafter %q want:\n%s", name, head, want)
	}
}

func TestDocumentsHaveTheFlagsAsTheyAre(t *testing.T) {
	usual := cli.FlagsOf("fixed")
	own := func(command string) []*pflag.Flag {
		return slices.DeleteFunc(cli.FlagsOf(command), func(f *pflag.Flag) bool {
			return slices.ContainsFunc(usual, func(u *pflag.Flag) bool { return u.Name == f.Name })
		})
	}
	for head, flags := range map[string][]*pflag.Flag{
		"flag": usual, "flag of compare": own("compare"), "flag of live": own("live"), "flag of gallery": own("gallery"), "flag of page": own("page"), "flag of verify": cli.FlagsOf("verify"), "flag of backend": cli.FlagsOf("backend"),
	} {
		var rows []string
		for _, f := range flags {
			value := f.DefValue
			if value != "" {
				value = "`" + value + "`"
			}
			rows = append(rows, fmt.Sprintf("| `--%s` | %s | %s |", f.Name, value, f.Usage))
		}
		checkPart(t, appReadme, "| "+head+" | default | meaning |\n| --- | --- | --- |\n", "\n\n", strings.Join(rows, "\n"))
	}
}

func TestDocumentsHaveTheMetricsAsTheyAre(t *testing.T) {
	var rows []string
	for _, m := range telemetry.Metrics() {
		if m.What == "" { // a library's
			continue
		}
		kind := string(m.Kind)
		if m.Unit == "s" {
			kind += ", s"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s | %s |", m.Name, m.Stored(), kind, m.What))
	}
	checkPart(t, "telemetry/README.md", "| metric | in Prometheus | kind | what |\n| --- | --- | --- | --- |\n", "\n\n", strings.Join(rows, "\n"))
}

func TestDocumentsListEachStrategyAndDrill(t *testing.T) {
	var strategies, files, drills []string
	for _, m := range modes.All() {
		files = append(files, fmt.Sprintf("- [%s.go](%[1]s.go): %s", m.Name, m.Short))
		strategies = append(strategies, fmt.Sprintf("- [%s](app/cache/%[1]s.go): %s", m.Name, m.Short))
	}
	for _, d := range drill.All() {
		drills = append(drills, fmt.Sprintf("- [%s](#%[1]s): %s", d.Name, d.Short))
	}
	checkPart(t, firstReadme, "knows neither the Redis client nor OpenTelemetry:\n\n", "\n\n", strings.Join(strategies, "\n"))
	checkPart(t, "app/cache/README.md", "Each is one file and fits on one screen:\n\n", "\n\n", strings.Join(files, "\n"))
	checkPart(t, "app/drill/README.md", "The drills:\n\n", "\n\n", strings.Join(drills, "\n"))
}

func TestDocumentsSayWhenToTakeEachStrategy(t *testing.T) {
	_, section, _ := strings.Cut(document(t, "app/cache/README.md"), "\n## Which one to choose\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range modes.All() {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\| .+ \| \[%s\]\(%[1]s\.go\) \| .+ \| .+ \|$`, m.Name)).MatchString(section) {
			t.Errorf("app/cache/README.md does not say when to take %s", m.Name)
		}
	}
}

func TestDocumentsTellOfEachKeyOfTheJSON(t *testing.T) {
	run := reflect.TypeFor[facts.Run]()
	for i := range run.NumField() {
		key, _, _ := strings.Cut(run.Field(i).Tag.Get("json"), ",")
		if key != "-" && !regexp.MustCompile("(?m)^\\| .*`"+key+"[`{[].* \\| .+ \\|$").MatchString(document(t, appReadme)) {
			t.Errorf("%s has no row for the key %s", appReadme, key)
		}
	}
}

func TestDocumentsTellOfEachRoom(t *testing.T) {
	rooms, err := os.ReadDir(filepath.Join(top, "app"))
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		if line := "\n    " + room.Name() + "/ "; room.IsDir() && !strings.Contains(document(t, appReadme), line) {
			t.Errorf("%s has no line for app/%s", appReadme, room.Name())
		}
	}
}

func TestDocumentsHaveThePortsAndVersionsAsTheyAre(t *testing.T) {
	text := document(t, "deploy/README.md")
	settings := regexp.MustCompile(`(?m)^(\w+?)_(VERSION|PORT(?:_\d)?)=(.+)$`).FindAllStringSubmatch(document(t, ".env"), -1)
	if len(settings) < 10 {
		t.Fatalf("found only %q in .env", settings)
	}
	for _, s := range settings {
		row := "(?m)^\\|.*`" + s[1] + "_" + s[2] + "`.*\\| " + s[3] + " \\|$"
		if s[2] == "VERSION" {
			row = "(?m)^\\|.*" + strings.ToLower(s[1]) + ":v?" + regexp.QuoteMeta(s[3]) + "[`-].*\\|$"
		}
		if !regexp.MustCompile(row).MatchString(text) {
			t.Errorf("deploy/README.md does not say that %s_%s is %s", s[1], s[2], s[3])
		}
	}
}

// Somebody with three minutes reads it to the end.
func TestTheFirstReadmeIsShort(t *testing.T) {
	if lines := strings.Count(document(t, firstReadme), "\n"); lines > 150 {
		t.Errorf("%d lines, want at most 150: reference belongs into the README of its folder", lines)
	}
}

func TestDocumentsShowTheFixAsItIs(t *testing.T) {
	const begins, ends = "func (f *Fixed) Get(", "\n// waitForFill "
	_, rest, found := strings.Cut(document(t, "app/cache/fixed.go"), begins)
	code, _, found2 := strings.Cut(rest, ends)
	if !found || !found2 || !strings.Contains(code, "\nfunc (f *Fixed) fillUnderLock(") {
		t.Fatalf("fixed.go has something else between %q and %q:\n%s", begins, ends, code)
	}
	checkPart(t, firstReadme, "\n```go\n", "```\n", begins+code)
}

// documents are all of them, by their path from the top.
func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != top && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			names = append(names, strings.TrimPrefix(path, top+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 7 {
		t.Fatalf("found only %q", names)
	}
	return names
}

// anchors are what the headings of a document are linked by.
func anchors(text string) (all []string) {
	for _, heading := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile("[^a-z0-9_ -]").ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:href|src|srcset)="([^"]+)"`)
	for _, name := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(document(t, name), -1) {
			target := found[1] + found[2]
			if strings.Contains(target, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(target, "#")
			file := name
			if path != "" {
				file = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(top, file)); err != nil {
				t.Errorf("%s links to %s: %v", name, target, err)
			} else if anchor != "" && !slices.Contains(anchors(document(t, file)), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", name, target, file)
			}
		}
	}
}

// The tour and the drills say which panel to look at.
func TestDocumentsNamePanelsThatThereAre(t *testing.T) {
	dashboards := document(t, "grafana/dashboards/thundering-herd.json") + document(t, "grafana/dashboards/under-the-hood.json") + document(t, "grafana/dashboards/gallery.json")
	for name, emphasis := range map[string]string{
		"grafana/README.md":   `\*\*([^*]+)\*\*`,
		"app/drill/README.md": `[^*]\*([^*\s][^*]*)\*[^*]`,
	} {
		panels := regexp.MustCompile(emphasis).FindAllStringSubmatch(document(t, name), -1)
		if len(panels) < 5 {
			t.Errorf("%s: found only %q", name, panels)
		}
		for _, panel := range panels {
			title := strings.Join(strings.Fields(panel[1]), " ")
			if !strings.Contains(dashboards, fmt.Sprintf(`"title": %q`, title)) {
				t.Errorf("%s: no panel is called %q", name, title)
			}
		}
	}
}

// What documents name in backquotes is there: tests, and targets of make.
func TestDocumentsNameWhatThereIs(t *testing.T) {
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
	makefile, named := document(t, "Makefile"), 0
	for _, name := range documents(t) {
		text := document(t, name)
		for _, found := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
			named++
			if !strings.Contains(tests.String(), "func "+found[1]+"(") {
				t.Errorf("%s: there is no %s", name, found[1])
			}
		}
		for _, found := range regexp.MustCompile("(?m)(?:`|^ {4})make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
			target, isDrill := strings.CutPrefix(found[1], "drill-")
			known := strings.Contains(makefile, "\n"+target+":")
			if isDrill {
				known = slices.ContainsFunc(drill.All(), func(d drill.Drill) bool { return d.Name == target })
			}
			if !known {
				t.Errorf("%s: there is no make %s", name, found[1])
			}
		}
	}
	if named < 10 {
		t.Fatalf("found %d names of tests", named)
	}
}
