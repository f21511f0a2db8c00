// Package deploy holds the tests of the stack: its compose file, its start script, and the whole of it end to end.
// They have a go.mod of their own, so that what they need is no dependency of the lab.
package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// published says which port of which service a variable of .env publishes.
var published = map[string]struct {
	service string
	inside  uint32
}{
	"REDIS_PORT":      {"redis", 6379},
	"JAEGER_PORT":     {"jaeger", 16686},
	"OTLP_HTTP_PORT":  {"jaeger", 4318},
	"OTLP_GRPC_PORT":  {"jaeger", 4317},
	"PROMETHEUS_PORT": {"prometheus", 9090},
	"GRAFANA_PORT":    {"grafana", 3000},
}

// announced says of which host a variable of .env is a port that a Redis process listens on, announces, and publishes.
var announced = map[string]string{
	"CLUSTER_PORT_1":          "cluster",
	"CLUSTER_PORT_2":          "cluster",
	"CLUSTER_PORT_3":          "cluster",
	"SENTINEL_MASTER_PORT":    "sentinel",
	"SENTINEL_REPLICA_PORT_1": "sentinel",
	"SENTINEL_REPLICA_PORT_2": "sentinel",
	"SENTINEL_PORT_1":         "sentinel",
	"SENTINEL_PORT_2":         "sentinel",
	"SENTINEL_PORT_3":         "sentinel",
}

// stack loads compose.yaml as docker compose would: with all profiles, .env, and over it the given variables. The
// shell's own variables are left out, so that the tests see the same everywhere.
func stack(t *testing.T, variables ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions(
		[]string{filepath.Join("..", "compose.yaml")},
		cli.WithWorkingDirectory(".."),
		cli.WithEnv(variables),
		cli.WithEnvFiles(),
		cli.WithDotEnv,
		cli.WithProfiles([]string{"*"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// environment is the value of a variable in a service's container.
func environment(project *types.Project, service, name string) string {
	if value := project.Services[service].Environment[name]; value != nil {
		return *value
	}
	return ""
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func find(t *testing.T, path, expression string) string {
	t.Helper()
	match := regexp.MustCompile(expression).FindStringSubmatch(read(t, path))
	if match == nil {
		t.Fatalf("%s has no %s", path, expression)
	}
	return match[1]
}

// eventually tries until there is no error; the last one tells what is missing.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v, after %v", what, err, limit)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
