package cli_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cachelab/app/cli"
)

func TestVariablesThatNoCommandHasAreNamed(t *testing.T) {
	for variable, want := range map[string]string{
		"CACHELAB_WORKER":         "CACHELAB_WORKER is set, but no command has such a variable: do you mean CACHELAB_WORKERS?",
		"CACHELAB_BACKENDLATENCY": "CACHELAB_BACKENDLATENCY is set, but no command has such a variable: do you mean CACHELAB_BACKEND_LATENCY?",
		"CACHELAB_SOMETHING_ELSE": "CACHELAB_SOMETHING_ELSE is set, but no command has such a variable",
		"CACHELAB_EACH":           "", // of live
		"CACHELAB_PROMETHEUS_URL": "", // of verify
		"CACHELAB_MODES":          "", // of compare
		"CACHELAB_REQUIRE_REDIS":  "",
		"CACHELAB_SERVERS":        "",
		"OTEL_SERVICE_NAME":       "",
		"MY_CACHELAB_WORKER":      "",
	} {
		if got := strings.Join(cli.UnknownVariables([]string{variable + "=3", "PATH=/bin"}), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", variable, got, want)
		}
	}
	env := map[string]string{"CACHELAB_WORKER": "3", "CACHELAB_ROUNDS": "1"}
	out := run(t.Context(), t, env, "fixed", "--redis", "embedded", "--telemetry", "off", "--backend-latency", "5ms", "--json", "-")
	equal(t, "exit code", out.code, cli.ExitOK)
	equal(t, "workers", decode(t, out.stdout).Workers, 50)
	if !strings.HasPrefix(out.stderr, "warning: CACHELAB_WORKER is set, but no command has such a variable: do you mean CACHELAB_WORKERS?\n") {
		t.Errorf("printed:\n%s", out.stderr)
	}
}

// Whatever the repository sets or reads, make and compose among them, is known.
func TestVariablesOfTheRepositoryAreKnown(t *testing.T) {
	names := regexp.MustCompile(`\bCACHELAB_[A-Z_]+\b`)
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if slices.Contains([]string{".git", ".bin", ".cachelab"}, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		case entry.Name() == "variables_test.go" || !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		for _, name := range names.FindAllString(string(text), -1) {
			found[name] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("found only %v", found)
	}
	for name, path := range found {
		for _, text := range cli.UnknownVariables([]string{name + "=1"}) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

func TestVersionIsWhatTheBuildSays(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "cachelab")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X cachelab/app/cli.built=v1.2.3", "-o", binary, "cachelab/app").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "--version").CombinedOutput()
	if err != nil || string(out) != "cachelab version v1.2.3\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestTheShellCompletes(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out := run(t.Context(), t, nil, "completion", shell)
		equal(t, "exit code", out.code, cli.ExitOK)
		if !strings.Contains(out.stdout, "__complete") {
			t.Errorf("%s: %s", shell, out.stdout)
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here: its script is not tried", shell)
			continue
		}
		file := filepath.Join(t.TempDir(), "completion")
		if err := os.WriteFile(file, []byte(out.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, err := exec.CommandContext(t.Context(), program, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, said)
		}
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"dr"}, []string{"drill"}}, // and not the winner's own command
		{[]string{"drill", "dead"}, []string{"dead-winner"}},
		{[]string{"fixed", "--work"}, []string{"--workers"}},
		{[]string{"live", "--th"}, []string{"--think"}},
		{[]string{"completion", ""}, []string{"bash", "fish", "zsh"}},
	} {
		out := run(t.Context(), t, nil, append([]string{"__complete"}, test.args...)...)
		var got []string
		for line := range strings.Lines(out.stdout) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.args, got, test.want)
		}
	}
}

// A real bash, without the package bash-completion: the function of it that the script needs is here in short.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "cachelab"), "cachelab/app").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), bash, "-c", `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
source <(cachelab completion bash)
COMP_WORDS=(cachelab fixed --backend-lat) COMP_CWORD=2 COMP_LINE="cachelab fixed --backend-lat" COMP_POINT=28 COMP_TYPE=9
__start_cachelab 2>/dev/null
echo "${COMPREPLY[@]}"`)
	c.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "--backend-latency") {
		t.Errorf("%q, %v", out, err)
	}
}
