package lab_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Each room knows only what it must: the contract of app/lab's wiring.
var mayImport = map[string][]string{
	"cachelab/app/cache":       {},
	"cachelab/app/herd":        {"cachelab/app/cache"},
	"cachelab/app/backend":     {},
	"cachelab/app/drill":       {"cachelab/app/cache", "cachelab/app/herd"},
	"cachelab/app/embedded":    {},
	"cachelab/app/redisserver": {},
	"cachelab/app/redisstore":  {},
	"cachelab/app/events":      {"cachelab/app/cache", "cachelab/app/herd"},
	"cachelab/app/observe":     {"cachelab/app/cache", "cachelab/app/herd", "cachelab/telemetry"},
	"cachelab/app/report":      {"cachelab/app/cache", "cachelab/app/herd", "cachelab/app/events", "cachelab/app/redisstore", "cachelab/telemetry"},
	"cachelab/telemetry":       {},
}

func TestRoomsImportOneWay(t *testing.T) {
	for room, allowed := range mayImport {
		for _, dependency := range goList(t, "-f", `{{join .Imports "\n"}}`, room) {
			if strings.HasPrefix(dependency, "cachelab/") && !slices.Contains(allowed, dependency) {
				t.Errorf("%s imports %s", room, dependency)
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

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return strings.Fields(string(out))
}
