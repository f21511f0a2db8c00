package deploy

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// One pod coordinates and takes part, the others join; none is tried again; who fails does not take the coordinator along.
func TestAHerdIsAnIndexedJob(t *testing.T) {
	lab := stack(t)
	for _, mode := range modesOfHerds {
		c := kustomized(t, "herd/"+mode)
		job := c.jobs["herd-"+mode]
		if job == nil {
			t.Fatalf("the jobs of %s are %v", mode, c.jobs)
		}
		spec := job.Spec
		if spec.CompletionMode == nil || *spec.CompletionMode != batchv1.IndexedCompletion || *spec.Completions != 4 || *spec.Parallelism != 4 {
			t.Errorf("%s: %v, %d of %d at once", mode, spec.CompletionMode, *spec.Parallelism, *spec.Completions)
		}
		if spec.BackoffLimitPerIndex == nil || *spec.BackoffLimitPerIndex != 0 || spec.BackoffLimit != nil || spec.MaxFailedIndexes != nil ||
			spec.PodFailurePolicy != nil || spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever || spec.ActiveDeadlineSeconds == nil {
			t.Errorf("%s: what fails is tried again, or ends the others: %+v", mode, spec)
		}
		container := spec.Template.Spec.Containers[0]
		if !slices.Equal(container.Args, []string{mode}) {
			t.Errorf("%s does %q", mode, container.Args)
		}
		values := variables(container)
		if values["CACHELAB_PROCESSES"] != "1" || values["CACHELAB_JOINERS"] != strconv.Itoa(int(*spec.Completions)-1) {
			t.Errorf("%s: %s coordinates for %s joiners, there are %d pods", mode, values["CACHELAB_PROCESSES"], values["CACHELAB_JOINERS"], *spec.Completions)
		}
		from := map[string]string{}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil {
				from[variable.Name] = variable.ValueFrom.FieldRef.FieldPath
			}
		}
		if want := map[string]string{
			"CACHELAB_RANK": "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']",
			"JOB":           "metadata.labels['" + batchv1.ControllerUidLabel + "']",
		}; !maps.Equal(from, want) || values["CACHELAB_RUN_ID"] != "rounds-$(JOB)" {
			t.Errorf("%s: who coordinates which run is %v, %q", mode, from, values["CACHELAB_RUN_ID"])
		}
		// what the lab of compose is told of the stack, the herd is, too
		for _, name := range []string{"CACHELAB_REDIS", "CACHELAB_JAEGER_API", "CACHELAB_PROMETHEUS_URL", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
			if want := environment(lab, "lab", name); values[name] != want {
				t.Errorf("%s: %s=%s, with compose %s", mode, name, values[name], want)
			}
		}
		mounts := container.VolumeMounts
		if want := find(t, "Dockerfile", `(?m)^WORKDIR (\S+)\nENV`); len(mounts) != 1 || mounts[0].MountPath != want {
			t.Errorf("%s: the record for verify cannot be written: %+v", mode, mounts)
		}
	}
}

func TestOnlyTheHerdMayTalkToRedis(t *testing.T) {
	whole, herd := kustomized(t, "."), kustomized(t, "herd/fixed")
	policy := whole.policies["redis"].Spec
	if len(policy.Ingress) != 1 || len(policy.Ingress[0].From) != 1 || !slices.Equal(policy.PolicyTypes, []networkingv1.PolicyType{"Ingress"}) {
		t.Fatalf("the policy is %+v", policy)
	}
	to, from := labels.SelectorFromSet(policy.PodSelector.MatchLabels), labels.SelectorFromSet(policy.Ingress[0].From[0].PodSelector.MatchLabels)
	for name, pod := range whole.pods {
		if to.Matches(labels.Set(pod.Labels)) != (name == "redis") || from.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the policy is for %s, or lets it in", name)
		}
	}
	if !from.Matches(labels.Set(herd.pods["herd-fixed"].Labels)) {
		t.Errorf("the herd is kept out")
	}
	if port := policy.Ingress[0].Ports; len(port) != 1 || port[0].Port.StrVal != whole.pods["redis"].Spec.Containers[0].Ports[0].Name {
		t.Errorf("the policy is for the ports %+v", port)
	}
}
