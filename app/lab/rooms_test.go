package lab_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Each room knows only what it must: the contract of app/lab's wiring.
var mayImport = map[string][]string{
	"cachelab/app/cache":          {},
	"cachelab/app/herd":           {"cachelab/app/cache"},
	"cachelab/app/modes":          {"cachelab/app/cache", "cachelab/app/herd"},
	"cachelab/app/price":          {},
	"cachelab/app/backend":        {"cachelab/app/price"},
	"cachelab/app/drill":          {"cachelab/app/cache", "cachelab/app/cache/cachetest", "cachelab/app/herd"},
	"cachelab/app/embedded":       {},
	"cachelab/app/fleet":          {},
	"cachelab/app/fleet/children": {"cachelab/app/fleet"},
	"cachelab/app/fleet/meeting":  {"cachelab/app/fleet"},
	"cachelab/app/redisserver":    {},
	"cachelab/app/redisstore":     {"cachelab/app/cache", "cachelab/telemetry/redact"},
	"cachelab/app/events":         {"cachelab/app/cache", "cachelab/app/herd"},
	"cachelab/app/observe":        {"cachelab/app/backend", "cachelab/app/cache", "cachelab/app/herd", "cachelab/telemetry"},
	"cachelab/app/facts":          {"cachelab/app/cache", "cachelab/app/herd", "cachelab/app/modes", "cachelab/app/redisstore", "cachelab/telemetry"},
	"cachelab/app/report":         {"cachelab/app/cache", "cachelab/app/facts", "cachelab/app/herd", "cachelab/app/modes", "cachelab/app/events", "cachelab/telemetry"},
	"cachelab/app/page":           {"cachelab/app/facts", "cachelab/app/herd"},
	"cachelab/app/web":            {"cachelab/app/cache", "cachelab/app/events", "cachelab/app/facts", "cachelab/app/herd", "cachelab/app/page", "cachelab/telemetry"},
	"cachelab/app/results":        {"cachelab/app/cache", "cachelab/app/facts", "cachelab/app/herd", "cachelab/app/modes", "cachelab/telemetry"},
	"cachelab/app/record":         {"cachelab/app/cache", "cachelab/app/facts"},
	"cachelab/app/verify":         {"cachelab/app/cache", "cachelab/app/herd", "cachelab/app/record", "cachelab/app/redisstore", "cachelab/telemetry"},
	"cachelab/app/cli": {"cachelab/app/backend", "cachelab/app/cache", "cachelab/app/drill", "cachelab/app/facts", "cachelab/app/fleet", "cachelab/app/fleet/children", "cachelab/app/fleet/meeting", "cachelab/app/lab", "cachelab/app/modes", "cachelab/app/page",
		"cachelab/app/record", "cachelab/app/redisstore", "cachelab/app/report", "cachelab/app/results", "cachelab/app/verify", "cachelab/app/web", "cachelab/telemetry", "cachelab/telemetry/redact"},
	"cachelab/app/lab": {"cachelab/app/backend", "cachelab/app/cache", "cachelab/app/drill", "cachelab/app/embedded",
		"cachelab/app/events", "cachelab/app/facts", "cachelab/app/fleet", "cachelab/app/fleet/children", "cachelab/app/fleet/meeting", "cachelab/app/herd", "cachelab/app/modes", "cachelab/app/observe", "cachelab/app/price", "cachelab/app/record", "cachelab/app/redisserver",
		"cachelab/app/redisstore", "cachelab/app/report", "cachelab/app/results", "cachelab/telemetry"},
	"cachelab/app":              {"cachelab/app/cli", "cachelab/app/modes"},
	"cachelab/telemetry":        {"cachelab/telemetry/otlp", "cachelab/telemetry/redact"},
	"cachelab/telemetry/otlp":   {},
	"cachelab/telemetry/redact": {},
}

// Who imports the Redis client: the store and the meeting send commands, the others hand it on or watch it, and make a cluster of
// servers.
var mayUseRedis = []string{"cachelab/app/redisstore", "cachelab/app/redisserver", "cachelab/app/fleet/meeting", "cachelab/app/lab", "cachelab/telemetry"}

func TestRoomsImportOneWay(t *testing.T) {
	for _, room := range goList(t, "cachelab/app/...", "cachelab/telemetry/...") {
		allowed, known := mayImport[room]
		if strings.HasSuffix(room, "test") {
			continue // for tests only
		}
		if !known {
			t.Errorf("nobody says what %s may import", room)
		}
		for _, dependency := range goList(t, "-f", `{{join .Imports "\n"}}`, room) {
			if strings.HasPrefix(dependency, "cachelab/") && !slices.Contains(allowed, dependency) {
				t.Errorf("%s imports %s", room, dependency)
			}
			if dependency == "github.com/redis/go-redis/v9" && !slices.Contains(mayUseRedis, room) {
				t.Errorf("%s imports the Redis client", room)
			}
		}
	}
}

func TestTheDomainKnowsNeitherRedisNorOpenTelemetry(t *testing.T) {
	for _, room := range []string{"cachelab/app/cache", "cachelab/app/herd"} {
		dependencies := goList(t, "-deps", room)
		if len(dependencies) < 20 {
			t.Fatalf("go list found %d dependencies of %s", len(dependencies), room)
		}
		for _, dependency := range dependencies {
			for _, foreign := range []string{"github.com/redis/", "go.opentelemetry.io/", "github.com/alicebob/"} {
				if strings.HasPrefix(dependency, foreign) {
					t.Errorf("%s reaches %s", room, dependency)
				}
			}
		}
	}
}

// What a run counted is kept, compared and written as JSON without a terminal and without the page.
func TestTheFactsKnowNeitherTerminalNorPage(t *testing.T) {
	for _, room := range []string{"cachelab/app/facts", "cachelab/app/record", "cachelab/app/verify"} {
		dependencies := goList(t, "-deps", room)
		if len(dependencies) < 20 {
			t.Fatalf("go list found %d dependencies of %s", len(dependencies), room)
		}
		for _, dependency := range dependencies {
			for _, foreign := range []string{"cachelab/app/report", "cachelab/app/page", "charm.land/", "github.com/charmbracelet/", "github.com/vbauerster/"} {
				if strings.HasPrefix(dependency, foreign) {
					t.Errorf("%s reaches %s", room, dependency)
				}
			}
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return strings.Fields(string(out))
}
