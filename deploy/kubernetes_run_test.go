//go:build kubernetes

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The manifests on the cluster of KUBECONFIG: "make e2e-kubernetes". Everything is in the namespace cachelab, which must not
// be there before, and is not afterwards.

// image is the lab's own, where the cluster finds it.
func image() string {
	if name := os.Getenv("IMAGE"); name != "" {
		return name
	}
	return "cachelab:local"
}

// kubectl runs kubectl, with what it reads, in the namespace of the lab.
func kubectl(t *testing.T, input string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "kubectl", append([]string{"--namespace", "cachelab"}, arguments...)...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %q: %w: %s", arguments, err, out)
	}
	return string(out), err
}

// must is kubectl that succeeds.
func must(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	out, err := kubectl(t, input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// manifests builds a kustomization below kubernetes, with the image that the test is given.
func manifests(t *testing.T, folder string) string {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("kubernetes", folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "image: cachelab:local", "image: "+image())
}

// startStack brings up the stack without Grafana, and removes it when the test ends.
func startStack(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG names no cluster: the manifests are tried on the one that it names, and on no other")
	}
	if out, err := kubectl(t, "", "get", "namespace", "cachelab"); err == nil {
		t.Fatalf("the cluster has the namespace cachelab already, delete it first:\n%s", out)
	}
	t.Cleanup(func() {
		command := exec.Command("kubectl", "delete", "namespace", "cachelab", "--timeout=120s") // the test's context has ended
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("the namespace cachelab is left: %v: %s", err, out)
		}
	})
	must(t, manifests(t, "stack"), "apply", "--server-side", "--filename", "-")
	if _, err := kubectl(t, "", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=180s"); err != nil {
		t.Fatal(err, must(t, "", "get", "events"))
	}
}

// ended is a herd whose Job has ended.
type ended struct {
	complete bool
	reason   string         // why it failed
	log      string         // of the pod that coordinated
	codes    map[string]int // exit codes, by index
}

// startHerd creates the Job of a mode, with changes to its YAML.
func startHerd(t *testing.T, mode string, changes ...string) {
	t.Helper()
	must(t, strings.NewReplacer(changes...).Replace(manifests(t, "herd/"+mode)), "apply", "--server-side", "--filename", "-")
}

// index selects the pod of an index.
func index(mode string, index int) string {
	return fmt.Sprintf("--selector=%s=herd-%s,%s=%d", batchv1.JobNameLabel, mode, batchv1.JobCompletionIndexAnnotation, index)
}

// endHerd waits until the Job has ended, tells how, and removes it.
func endHerd(t *testing.T, mode string) (j ended) {
	t.Helper()
	eventually(t, 5*time.Minute, "herd-"+mode+" has ended", func() error {
		var job batchv1.Job
		decode(t, must(t, "", "get", "job", "herd-"+mode, "--output=json"), &job)
		for _, condition := range job.Status.Conditions {
			if condition.Status == corev1.ConditionTrue && slices.Contains([]batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}, condition.Type) {
				j.complete, j.reason = condition.Type == batchv1.JobComplete, condition.Reason
				return nil
			}
		}
		return fmt.Errorf("%+v", job.Status)
	})
	j.log = must(t, "", "logs", "--container=lab", "--tail=-1", index(mode, 0))
	var pods corev1.PodList
	decode(t, must(t, "", "get", "pods", "--selector="+batchv1.JobNameLabel+"=herd-"+mode, "--output=json"), &pods)
	j.codes = map[string]int{}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if s := status.State.Terminated; s != nil {
				j.codes[pod.Labels[batchv1.JobCompletionIndexAnnotation]] = int(s.ExitCode)
			}
		}
	}
	must(t, "", "delete", "job", "herd-"+mode, "--wait")
	return j
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// callsPerExpiry is what the verdict says.
func (j ended) callsPerExpiry(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`verdict: ok, \d+ backend calls / \d+ expiries = ([0-9.]+)`).FindStringSubmatch(j.log)
	if m == nil {
		return "no verdict that is ok"
	}
	return m[1]
}

func TestOnACluster(t *testing.T) {
	startStack(t)
	for _, herd := range []struct{ mode, want string }{{"fixed", "1.0"}, {"coalesced", "4.0"}, {"broken", "80.0"}} {
		t.Run(herd.mode, func(t *testing.T) {
			startHerd(t, herd.mode)
			j := endHerd(t, herd.mode)
			t.Logf("%s: exit codes %v\n%s", herd.mode, j.codes, j.log)
			if got := j.callsPerExpiry(t); got != herd.want || !j.complete || fmt.Sprint(j.codes) != "map[0:0 1:0 2:0 3:0]" {
				t.Errorf("%s calls per expiry, want %s; complete %v, exit codes %v", got, herd.want, j.complete, j.codes)
			}
			if !strings.Contains(j.log, "the app, Redis, Jaeger and Prometheus agree\n") || strings.Contains(j.log, "no command has such a variable") {
				t.Errorf("what is stored or what the backend counted is not what was printed, or a variable is unknown")
			}
		})
	}
	t.Run("pods that start 20 s apart", func(t *testing.T) {
		// Pod 3 is there at once, the coordinator after 20 s, pod 2 after a minute.
		late := fmt.Sprintf(`
      initContainers:
      - name: late
        image: %s
        command: [sh, -c, "sleep $(( (JOB_COMPLETION_INDEX + 1) %% 4 * 20 ))"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        resources: {limits: {cpu: 100m, memory: 16Mi}}
      containers:
`, stack(t).Services["redis"].Image)
		startHerd(t, "fixed", "\n      containers:\n", late)
		j := endHerd(t, "fixed")
		t.Logf("exit codes %v\n%s", j.codes, j.log)
		if got := j.callsPerExpiry(t); got != "1.0" || !j.complete {
			t.Errorf("%s calls per expiry, want 1.0; complete %v, exit codes %v", got, j.complete, j.codes)
		}
	})
	t.Run("a pod is killed in a round", func(t *testing.T) {
		startHerd(t, "fixed")
		eventually(t, 2*time.Minute, "the second round is over", func() error {
			out, err := kubectl(t, "", "logs", "--container=lab", "--tail=-1", index("fixed", 0))
			if err == nil && !strings.Contains(out, "round 2") {
				err = fmt.Errorf("the log is %s", out)
			}
			return err
		})
		victim := strings.TrimSpace(must(t, "", "get", "pods", index("fixed", 2), "--output=name"))
		must(t, "", "delete", victim, "--grace-period=0", "--force")
		j := endHerd(t, "fixed")
		t.Logf("%s was killed; %s, exit codes %v\n%s", victim, j.reason, j.codes, j.log)
		named := regexp.MustCompile(`(?m)^cachelab: in round [2-5]: process \d \(pid 1 on herd-fixed-2\): `)
		if j.complete || j.codes["0"] != 1 || !named.MatchString(j.log) || !strings.Contains(j.log, "verdict: not ok, after ") {
			t.Errorf("complete %v, exit codes %v; does the log say %s?", j.complete, j.codes, named)
		}
	})
}
