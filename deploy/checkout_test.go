package deploy

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// tracked are the files of the repository, as they are here, by their path from its root.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("no Git checkout: %v", err)
	}
	files := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	return slices.DeleteFunc(files, func(file string) bool {
		_, err := os.Stat(filepath.Join("..", file))
		return err != nil
	})
}

// checkout copies the tracked files below some of the repository's paths, with modes of the owner only.
func checkout(t *testing.T, into string, below ...string) {
	t.Helper()
	for _, file := range tracked(t) {
		if !slices.ContainsFunc(below, func(path string) bool { return strings.HasPrefix(file, path) }) {
			continue
		}
		about, err := os.Stat(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(into, file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, []byte(read(t, filepath.Join("..", file))), about.Mode()&0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// Git for Windows writes CRLF by default, and a script that begins with "#!/usr/bin/env bash\r" does not start.
func TestLinesEndAlikeWhateverAutocrlfSays(t *testing.T) {
	here, clone := t.TempDir(), filepath.Join(t.TempDir(), "clone")
	checkout(t, here, "")
	for _, arguments := range [][]string{
		{"-C", here, "init", "--quiet"},
		{"-C", here, "add", "--all"},
		{"-C", here, "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message", "all"},
		{"-c", "core.autocrlf=true", "clone", "--quiet", here, clone},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", arguments, err, out)
		}
	}
	if script := read(t, filepath.Join(clone, "deploy", "up")); !strings.HasPrefix(script, "#!/usr/bin/env bash\n") {
		line, _, _ := strings.Cut(script, "\n")
		t.Errorf("deploy/up begins with %q", line)
	}
	var changed []string
	for _, file := range tracked(t) {
		if read(t, filepath.Join(here, file)) != read(t, filepath.Join(clone, file)) {
			changed = append(changed, file)
		}
	}
	if len(changed) > 0 {
		t.Errorf("%d files differ in a clone with core.autocrlf=true: %s, ...", len(changed), changed[0])
	}
}

// The users in the containers are not the one who made the checkout.
func TestUpOpensAClosedCheckout(t *testing.T) {
	here := t.TempDir()
	checkout(t, here, "deploy/", "grafana/", "compose.yaml", ".env")
	got := runUpOf(t, filepath.Join(here, "deploy"), docker, freePorts(t))
	if got.code != 0 || !got.started() || !strings.HasPrefix(got.errors, "The containers could not read these files, now everybody may:\n./deploy/") {
		t.Fatalf("exit %d, says %q, calls %q", got.code, got.errors, got.calls)
	}
	mounted := 0
	for _, service := range stack(t).Services {
		for _, mount := range service.Volumes {
			if mount.Type != types.VolumeTypeBind {
				continue
			}
			root, err := filepath.Abs("..")
			if err != nil {
				t.Fatal(err)
			}
			inside, err := filepath.Rel(root, mount.Source)
			if err != nil {
				t.Fatal(err)
			}
			err = filepath.WalkDir(filepath.Join(here, inside), func(path string, entry fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				about, err := entry.Info()
				if err != nil {
					return err
				}
				mounted++
				want := fs.FileMode(0o644)
				if about.Mode()&0o100 != 0 { // a folder, or a script
					want = 0o755
				}
				if about.Mode().Perm() != want {
					t.Errorf("%s has the mode %v, want %v", path, about.Mode().Perm(), want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	if mounted < 10 {
		t.Errorf("looked at %d mounted files and folders only", mounted)
	}
	// What is not mounted stays as it was, and a checkout that is open is left alone.
	if about, err := os.Stat(filepath.Join(here, ".env")); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf(".env: %v, %v", about.Mode(), err)
	}
	if got := runUpOf(t, filepath.Join(here, "deploy"), docker, freePorts(t)); got.code != 0 || got.errors != "" {
		t.Errorf("the second time: exit %d, says %q", got.code, got.errors)
	}
}

// makeIn runs make in a copy of the project that has nothing but what make reads, with the given go ("" for none).
func makeIn(t *testing.T, here, goProgram string, variables []string, target string) (out string, code int) {
	t.Helper()
	folder := t.TempDir()
	for _, tool := range []string{"bash", "sh", "grep", "sed", "sort", "head", "mkdir", "make", "env", "git"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("no %s here", tool)
		}
		if err := os.Symlink(path, filepath.Join(folder, tool)); err != nil {
			t.Fatal(err)
		}
	}
	if goProgram != "" {
		if err := os.WriteFile(filepath.Join(folder, "go"), []byte(goProgram), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "make"), "-C", here, "--no-print-directory", target)
	command.Env = append([]string{"PATH=" + folder}, variables...)
	var both bytes.Buffer
	command.Stdout, command.Stderr = &both, &both
	_ = command.Run()
	return both.String(), command.ProcessState.ExitCode()
}

func TestMakeNamesTheGoThatIsNeeded(t *testing.T) {
	here := t.TempDir()
	checkout(t, here, "Makefile", ".env", "go.mod")
	needed := find(t, "../go.mod", `(?m)^go ([0-9.]+)$`)
	// A go that is asked for its version, and then builds.
	program := func(version, toolchain string) string {
		return "#!/bin/sh\ncase $* in\n'env GOVERSION') " + version + " ;;\n'env GOTOOLCHAIN') echo " + toolchain +
			" ;;\n*) echo built ;;\nesac\n"
	}
	const docker = "Docker does without: docker compose run --rm lab fixed\n"
	says := "The lab needs Go " + needed + " or newer, see https://go.dev/dl; here is: "
	const local = "GOTOOLCHAIN=local keeps it from fetching a newer one by itself.\n"
	for _, test := range []struct{ name, program, want string }{
		{"the needed one", program("echo go"+needed, "auto"), "built\n"},
		{"a newer one", program("echo go1.100.2", "local"), "built\n"},
		{"one in the making", program("echo devel go1.99-abcdef", "local"), "built\n"},
		{"none", "", says},
		{"too old to fetch one", program("echo go1.19.8", ""), says + "go1.19.8\n" + docker},
		{"held back", program("echo go1.24.9", "local"), says + "go1.24.9\n" + local + docker},
		{"offline", program("echo go: download go"+needed+": no route to host >&2; exit 1", "auto"),
			says + "go: download go" + needed + ": no route to host\n" + docker},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, code := makeIn(t, here, test.program, nil, "build")
			if good := test.want == "built\n"; !strings.HasPrefix(out, test.want) || good != (code == 0) || good == strings.Contains(out, docker) {
				t.Errorf("exit %d, says %q, want %q", code, out, test.want)
			}
		})
	}
}

// While the stack is up make hands over where it is: at 127.0.0.1, where compose publishes it. At localhost, which is
// [::1] too, something else may listen on the same port.
func TestMakeHandsOverTheStacksOwnPorts(t *testing.T) {
	here := t.TempDir()
	checkout(t, here, "Makefile", ".env", "go.mod")
	program := "#!/bin/sh\ncase $* in 'env '*) echo go1.99.0 ;; esac\n"
	for name, text := range map[string]string{
		".cachelab/up":  "export REDIS_PORT ?= 7001\nexport OTLP_HTTP_PORT ?= 7002\nexport PROMETHEUS_PORT ?= 7003\nexport JAEGER_PORT ?= 7004\nexport GRAFANA_PORT ?= 7005\n",
		".bin/cachelab": "#!/bin/sh\nenv | grep -E '^(CACHELAB|OTEL)_'\n",
	} {
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		variables []string
		want      map[string]string
	}{
		{nil, map[string]string{
			"CACHELAB_REDIS":                      "redis://127.0.0.1:7001",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":  "http://127.0.0.1:7002/v1/traces",
			"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:7003/api/v1/otlp/v1/metrics",
			"CACHELAB_PROMETHEUS_URL":             "http://127.0.0.1:7003",
			"CACHELAB_JAEGER_URL":                 "http://127.0.0.1:7004",
			"CACHELAB_GRAFANA_URL":                "http://127.0.0.1:7005",
		}},
		{[]string{"CACHELAB_REDIS=redis://[::1]:7009", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318"}, map[string]string{
			"CACHELAB_REDIS":              "redis://[::1]:7009",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
			"CACHELAB_PROMETHEUS_URL":     "http://127.0.0.1:7003",
			"CACHELAB_JAEGER_URL":         "http://127.0.0.1:7004",
			"CACHELAB_GRAFANA_URL":        "http://127.0.0.1:7005",
		}},
	} {
		out, code := makeIn(t, here, program, test.variables, "fixed")
		var got, want []string
		got = strings.Fields(out)
		for name, value := range test.want {
			want = append(want, name+"="+value)
		}
		slices.Sort(got)
		slices.Sort(want)
		if code != 0 || !slices.Equal(got, want) {
			t.Errorf("exit %d, handed over %q, want %q", code, got, want)
		}
	}
}
