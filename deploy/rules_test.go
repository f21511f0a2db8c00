//go:build e2e

package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = "config/rules/alerts.yml"
	ruleTests = "config/rules/tests/alerts.yml"
)

func promtool(t *testing.T, folder string, arguments ...string) (string, error) {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(programs.folder, "promtool"), arguments...)
	command.Dir = folder
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestRules(t *testing.T) {
	if out, err := promtool(t, ".", "check", "config", "config/prometheus.yml"); err != nil || !strings.Contains(out, "1 rule files found") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := promtool(t, ".", "test", "rules", ruleTests); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A fixed run whose backend is down does what it can: its workers call one after another, and that is no herd.
func TestNoRuleTakesADeadBackendForAHerd(t *testing.T) {
	s := startServers(t)
	r := s.lab(t, "fixed", "--rounds", "1", "--workers", "20", "--backend-fail", "all", "--backend-latency", "50ms")
	over := time.Now()
	type evaluated struct {
		Groups []struct{ LastEvaluation time.Time }
	}
	eventually(t, 10*time.Second, "the rules have seen the whole run", func() error {
		groups := ask[evaluated](t, s.prometheus+"/api/v1/rules", nil).Groups
		if len(groups) != 1 || !groups[0].LastEvaluation.After(over) {
			return fmt.Errorf("%+v", groups)
		}
		return nil
	})
	failed := s.query(t, `sum(cachelab_backend_answers_total{result="error"})`)
	if r.json.BackendCalls != 20 || !slices.Equal(failed, []float64{20}) {
		t.Errorf("%d backend calls, of which %v failed, want 20", r.json.BackendCalls, failed)
	}
	if fired := s.query(t, `count_over_time(ALERTS[5m])`); len(fired) != 0 {
		t.Errorf("alerts fired: %v", fired)
	}
}

// Each rule's threshold is held by the rule tests, from either side where there are two.
func TestRuleTestsKnowTheThresholds(t *testing.T) {
	text := read(t, rulesFile)
	var rules struct {
		Groups []struct {
			Interval string
			Rules    []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &rules); err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		if group.Interval != "1s" {
			t.Errorf("rules are looked at every %s, want 1s", group.Interval)
		}
		for _, rule := range group.Rules {
			if rule.For != "" {
				t.Errorf("%s waits %s, and a herd is over by then", rule.Alert, rule.For)
			}
			expr := strings.TrimSpace(rule.Expr)
			cut := strings.LastIndex(expr, " > ")
			threshold := expr[cut+3:]
			others := []string{"-1", "1"}
			if threshold == "0.5" {
				others = []string{"0.49", "0.51"}
			} else if threshold != "0" {
				t.Fatalf("%s has the threshold %s, which this test does not know", rule.Alert, threshold)
			}
			for _, other := range others {
				_, own, _ := strings.Cut(text, "alert: "+rule.Alert+"\n")
				changed := strings.Replace(own, " > "+threshold+"\n", " > "+other+"\n", 1)
				folder := t.TempDir()
				write(t, filepath.Join(folder, rulesFile), strings.TrimSuffix(text, own)+changed)
				write(t, filepath.Join(folder, ruleTests), read(t, ruleTests))
				if out, err := promtool(t, folder, "test", "rules", ruleTests); err == nil || !strings.Contains(out, rule.Alert) && !strings.Contains(out, "ALERTS") {
					t.Errorf("%s: no rule test minds the threshold %s instead of %s: %s", rule.Alert, other, threshold, out)
				}
			}
		}
	}
}

// The container sees the rules where its configuration looks for them.
func TestRulesAreMounted(t *testing.T) {
	looksFor := find(t, "config/prometheus.yml", `rule_files: \[(.+)\]`)
	there, err := filepath.Abs(filepath.Join("config", filepath.Dir(looksFor)))
	if err != nil {
		t.Fatal(err)
	}
	mounted := map[string]string{}
	for _, mount := range stack(t).Services["prometheus"].Volumes {
		mounted[mount.Target] = mount.Source
	}
	if beside := filepath.Join("/etc/prometheus", filepath.Dir(looksFor)); mounted[beside] != there {
		t.Errorf("%s is %q, want %s", beside, mounted[beside], there)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
