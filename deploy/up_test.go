package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A docker that only writes down what it was asked. What it answers, a test says in the variables.
const docker = `#!/bin/sh
echo "$*" >>"$CALLS"
case $* in
"version "*) [ -z "$ENGINE" ] || { echo "$ENGINE" >&2; exit 1; } ;;
"compose version") printf '%s\n' "${COMPOSE:-Docker Compose version v2.40.3}"; exit ${PLUGIN:-0} ;;
"compose port "*) [ -z "$OWN" ] || echo "127.0.0.1:$OWN" ;;
"compose ps --services --status running") printf '%s' "$BEFORE" ;;
"compose ps --all --services") printf '%s\n' redis jaeger ;;
"compose ps --all --format "*) printf "$STATES" ;;
"compose up "*) exit ${UP:-0} ;;
esac
`

// up is one call of deploy/up.
type up struct {
	code        int
	out, errors string
	calls       []string // of docker
}

func (u up) started() bool {
	return slices.ContainsFunc(u.calls, func(call string) bool { return strings.HasPrefix(call, "compose up ") })
}

// runUp calls deploy/up with the given docker ("" for none) and little else on the PATH.
func runUp(t *testing.T, docker string, variables map[string]string, services ...string) up {
	t.Helper()
	return runUpOf(t, ".", docker, variables, services...)
}

// runUpOf does so with the deploy/up in a folder, and the project around it.
func runUpOf(t *testing.T, deploy, docker string, variables map[string]string, services ...string) up {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	folder := t.TempDir()
	if docker != "" {
		if err := os.WriteFile(filepath.Join(folder, "docker"), []byte(docker), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"find", "chmod"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(folder, tool)); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs(filepath.Join(deploy, "up"))
	if err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(folder, "calls")
	command := exec.CommandContext(t.Context(), bash, append([]string{script}, services...)...)
	command.Dir = folder // it finds the project by itself
	command.Env = []string{"PATH=" + folder, "CALLS=" + calls}
	for name, value := range variables {
		command.Env = append(command.Env, name+"="+value)
	}
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs

	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return up{
		code:   command.ProcessState.ExitCode(),
		out:    out.String(),
		errors: errs.String(),
		calls:  strings.FieldsFunc(string(asked), func(r rune) bool { return r == '\n' }),
	}
}

// listen takes a free port until the test ends.
func listen(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// freePorts gives each variable a port on which nobody listens.
func freePorts(t *testing.T) map[string]string {
	t.Helper()
	ports := map[string]string{}
	var held []net.Listener // all at once, so that all differ
	for variable := range published {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, listener)
		ports[variable] = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	}
	for _, listener := range held {
		listener.Close()
	}
	return ports
}

func TestUpPrintsWhereToLook(t *testing.T) {
	ports := freePorts(t)
	for range 2 { // the second call is as good as the first
		got := runUp(t, docker, ports)
		if got.code != 0 || !got.started() {
			t.Fatalf("exit %d, calls %q\n%s", got.code, got.calls, got.errors)
		}
		want := fmt.Sprintf("\nGrafana     http://127.0.0.1:%s\nJaeger      http://127.0.0.1:%s\n"+
			"Prometheus  http://127.0.0.1:%s\nRedis       redis://127.0.0.1:%s\n",
			ports["GRAFANA_PORT"], ports["JAEGER_PORT"], ports["PROMETHEUS_PORT"], ports["REDIS_PORT"])
		if got.out != want {
			t.Errorf("prints %q, want %q", got.out, want)
		}
	}
}

// The message names the port and the variable, and nothing is half started.
func TestUpNamesTheTakenPort(t *testing.T) {
	for variable, port := range published {
		t.Run(variable, func(t *testing.T) {
			ports := freePorts(t)
			ports[variable] = listen(t)
			got := runUp(t, docker, ports)
			want := fmt.Sprintf("port %s is taken: set %s in .env\n", ports[variable], variable)
			if got.code != 1 || got.errors != want || got.started() {
				t.Errorf("exit %d, says %q, calls %q; want %q and no `compose up`", got.code, got.errors, got.calls, want)
			}
			if ask := fmt.Sprintf("compose port %s %d", port.service, port.inside); !slices.Contains(got.calls, ask) {
				t.Errorf("never asked whether the stack itself has the port: %q", got.calls)
			}
			ports["OWN"] = ports[variable] // it has
			if got := runUp(t, docker, ports); got.code != 0 || !got.started() {
				t.Errorf("exit %d with a port of its own, says %q", got.code, got.errors)
			}
		})
	}
}

func TestUpNamesAllTakenPorts(t *testing.T) {
	ports := map[string]string{}
	var want []string
	for variable := range published {
		ports[variable] = listen(t)
		want = append(want, fmt.Sprintf("port %s is taken: set %s in .env", ports[variable], variable))
	}
	got := runUp(t, docker, ports)
	said := strings.Split(strings.TrimSpace(got.errors), "\n")
	slices.Sort(said)
	slices.Sort(want)
	if !slices.Equal(said, want) || got.started() {
		t.Errorf("says %q, want %q", said, want)
	}
}

func TestUpRefusesAPortGivenTwice(t *testing.T) {
	ports := freePorts(t)
	ports["GRAFANA_PORT"] = ports["REDIS_PORT"]
	got := runUp(t, docker, ports)
	want := fmt.Sprintf("port %s is given twice: change GRAFANA_PORT in .env\n", ports["REDIS_PORT"])
	if got.code != 1 || got.errors != want || got.started() {
		t.Errorf("exit %d, says %q, want %q", got.code, got.errors, want)
	}
}

func TestUpStartsOnlyWhatIsAskedFor(t *testing.T) {
	ports := freePorts(t)
	ports["GRAFANA_PORT"] = listen(t) // in nobody's way
	got := runUp(t, docker, ports, "redis", "jaeger")
	want := fmt.Sprintf("\nJaeger      http://127.0.0.1:%s\nRedis       redis://127.0.0.1:%s\n", ports["JAEGER_PORT"], ports["REDIS_PORT"])
	if got.code != 0 || got.out != want {
		t.Errorf("exit %d, prints %q, want %q\n%s", got.code, got.out, want, got.errors)
	}
	if call := got.calls[len(got.calls)-1]; !strings.HasSuffix(call, " redis jaeger") {
		t.Errorf("started by %q", call)
	}
}

func TestUpReadsTheFileOfPorts(t *testing.T) {
	project := stack(t)
	got := runUp(t, strings.Replace(docker, `[ -z "$OWN" ] || echo "127.0.0.1:$OWN"`, `echo "127.0.0.1:$4"`, 1), nil)
	for _, variable := range []string{"GRAFANA_PORT", "JAEGER_PORT", "PROMETHEUS_PORT", "REDIS_PORT"} {
		if !strings.Contains(got.out, "://127.0.0.1:"+project.Environment[variable]+"\n") {
			t.Errorf("%s of .env is not in %q\n%s", variable, got.out, got.errors)
		}
	}
}

func TestUpWithoutDocker(t *testing.T) {
	for _, test := range []struct {
		name, docker string
		variables    map[string]string
		want         string
	}{
		{"not installed", "", nil, "docker is not installed: "},
		{"not running", docker, map[string]string{"ENGINE": "Cannot connect to the Docker daemon"},
			"docker is installed, but its engine does not answer: start it, or ask for the right to use it\nCannot connect to the Docker daemon\n"},
		{"no compose", docker, map[string]string{"PLUGIN": "1"}, "docker has no compose plugin: "},
		{"old compose", docker, map[string]string{"COMPOSE": "Docker Compose version v2.16.0"},
			"docker compose is 2.16.0, and 2.17 or newer is needed: "},
		{"compose of Python's days", docker, map[string]string{"COMPOSE": "docker-compose version 1.29.2, build 5becea4c"},
			"docker compose is 1.29.2, and 2.17 or newer is needed: "},
		{"podman-compose", docker, map[string]string{"COMPOSE": ">>>> Executing external compose provider \"/usr/bin/podman-compose\" <<<<\npodman-compose version 1.0.6\npodman version 4.9.3"},
			"docker compose is podman-compose here, which cannot start this stack: Docker Compose 2.17 or newer is needed, "},
	} {
		t.Run(test.name, func(t *testing.T) {
			variables := freePorts(t)
			maps.Copy(variables, test.variables)
			got := runUp(t, test.docker, variables)
			if got.code != 1 || !strings.HasPrefix(got.errors, test.want) || got.started() || got.out != "" {
				t.Errorf("exit %d, says %q, calls %q; want %q", got.code, got.errors, got.calls, test.want)
			}
		})
	}
}

// A start that fails says why, takes back what it started, and leaves what ran before.
func TestUpCleansUp(t *testing.T) {
	logs := func(service string) string { return "compose logs --no-color --tail 10 " + service }
	for _, test := range []struct{ name, before, states, want string }{
		{"unhealthy", "", `redis healthy\njaeger unhealthy\n`, logs("jaeger") + "; compose down"},
		{"exited", "", `redis healthy\njaeger \n`, logs("jaeger") + "; compose down"},
		{"no image", "", "", "compose down"},
		{"redis ran", "redis", `redis healthy\njaeger unhealthy\n`,
			logs("jaeger") + "; compose ps --all --services; compose rm --stop --force jaeger"},
	} {
		t.Run(test.name, func(t *testing.T) {
			variables := freePorts(t)
			variables["UP"], variables["BEFORE"], variables["STATES"] = "1", test.before, test.states
			got := runUp(t, docker, variables)
			listed := slices.Index(got.calls, "compose ps --all --format {{.Service}} {{.Health}}")
			if after := strings.Join(got.calls[listed+1:], "; "); after != test.want || got.code != 1 || got.out != "" {
				t.Errorf("exit %d, prints %q, calls %q, want %q", got.code, got.out, after, test.want)
			}
		})
	}
}

func TestUpTakesEachComposeThatIsNewEnough(t *testing.T) {
	for _, version := range []string{"v2.17.0", "2.40.3+ds1-0ubuntu1", "v2.39.1-desktop.1", "v5.0.1", "dev"} {
		variables := freePorts(t)
		variables["COMPOSE"] = "Docker Compose version " + version
		if got := runUp(t, docker, variables); got.code != 0 || !got.started() {
			t.Errorf("%s: exit %d, says %q", version, got.code, got.errors)
		}
	}
}
