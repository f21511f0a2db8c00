//go:build e2e

package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What a drill makes fail, or masks, or does on its own, is in all four accounts.
func TestEveryDrillIsStoredAsItWasPrinted(t *testing.T) {
	s := startServers(t)
	help, err := exec.CommandContext(t.Context(), s.program, "drill", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(help), "Available Commands:")
	listed, _, _ = strings.Cut(listed, "\n\n")
	drills := regexp.MustCompile(`(?m)^  (\S+) `).FindAllStringSubmatch(listed, -1)
	if len(drills) < 8 {
		t.Fatalf("drill --help lists %q", drills)
	}
	shorter := map[string][]string{"no-recheck": {"--rounds", "4"}}
	const failed = "the app, Jaeger and Prometheus agree; Redis's own counts are no check where commands failed"
	says := map[string]string{"lost-redis": failed, "failover": failed}
	for _, d := range drills {
		name := d[1]
		if name == "all" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if r := s.lab(t, append([]string{"drill", name}, shorter[name]...)...); r.code != 0 {
				t.Fatalf("exit %d:\n%s", r.code, r.out)
			}
			want := says[name]
			if want == "" {
				want = "the app, Redis, Jaeger and Prometheus agree"
			}
			if v := s.lab(t, "verify"); v.code != 0 || !strings.Contains(v.out, want) {
				t.Errorf("verify: exit %d, want %q in:\n%s", v.code, want, v.out)
			}
		})
	}
}
