package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// modesOfHerds are the Jobs below kubernetes/herd.
var modesOfHerds = []string{"broken", "coalesced", "fixed"}

// hash ends the name of a ConfigMap: a changed one has another name, and so its pod is made anew.
var hash = regexp.MustCompile(`-[0-9a-z]{10}$`)

// cluster is what a kustomization asks Kubernetes for, by name.
type cluster struct {
	names       []string // kind/name, sorted
	pods        map[string]corev1.PodTemplateSpec
	deployments map[string]*appsv1.Deployment
	jobs        map[string]*batchv1.Job
	services    map[string]*corev1.Service
	configs     map[string]*corev1.ConfigMap
	policies    map[string]*networkingv1.NetworkPolicy
	namespaces  map[string]*corev1.Namespace
}

// kustomized builds a kustomization below kubernetes as kubectl apply -k does, and reads each object by the rules of the
// API: a field that its type does not have is an error.
func kustomized(t *testing.T, folder string) cluster {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("kubernetes", folder))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	c := cluster{
		pods: map[string]corev1.PodTemplateSpec{}, deployments: map[string]*appsv1.Deployment{}, jobs: map[string]*batchv1.Job{},
		services: map[string]*corev1.Service{}, configs: map[string]*corev1.ConfigMap{},
		policies: map[string]*networkingv1.NetworkPolicy{}, namespaces: map[string]*corev1.Namespace{},
	}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, kind, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s %s: %v", resource.GetKind(), resource.GetName(), err)
		}
		name := resource.GetName()
		c.names = append(c.names, kind.Kind+"/"+hash.ReplaceAllString(name, ""))
		if kind.Kind != "Namespace" && resource.GetNamespace() != "cachelab" {
			t.Errorf("%s %s is in the namespace %q", kind.Kind, name, resource.GetNamespace())
		}
		switch object := object.(type) {
		case *appsv1.Deployment:
			c.deployments[name], c.pods[name] = object, object.Spec.Template
		case *batchv1.Job:
			c.jobs[name], c.pods[name] = object, object.Spec.Template
		case *corev1.Service:
			c.services[name] = object
		case *corev1.ConfigMap:
			c.configs[name] = object
		case *networkingv1.NetworkPolicy:
			c.policies[name] = object
		case *corev1.Namespace:
			c.namespaces[name] = object
		}
	}
	slices.Sort(c.names)
	return c
}

// clusters are all kustomizations that somebody applies.
func clusters(t *testing.T) map[string]cluster {
	t.Helper()
	all := map[string]cluster{".": kustomized(t, "."), "stack": kustomized(t, "stack")}
	for _, mode := range modesOfHerds {
		all["herd/"+mode] = kustomized(t, "herd/"+mode)
	}
	return all
}

func TestKubernetesIsAskedForTheStackAndOneHerd(t *testing.T) {
	stack := []string{
		"ConfigMap/jaeger", "ConfigMap/prometheus", "Deployment/backend", "Deployment/jaeger", "Deployment/prometheus", "Deployment/redis",
		"Namespace/cachelab", "NetworkPolicy/redis", "Service/backend", "Service/jaeger", "Service/prometheus", "Service/redis",
	}
	grafana := []string{"Deployment/grafana", "Service/grafana", "ConfigMap/grafana-datasources", "ConfigMap/grafana-providers"}
	boards, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, board := range boards {
		grafana = append(grafana, "ConfigMap/grafana-"+strings.TrimSuffix(filepath.Base(board), ".json"))
	}
	want := map[string][]string{"stack": stack, ".": slices.Concat(stack, grafana)}
	for _, mode := range modesOfHerds {
		want["herd/"+mode] = []string{"Job/herd-" + mode}
	}
	for folder, got := range clusters(t) {
		slices.Sort(want[folder])
		if !slices.Equal(got.names, want[folder]) {
			t.Errorf("%s holds %q, want %q", folder, got.names, want[folder])
		}
	}
}

// Kubernetes itself refuses a pod that is not restricted; a read-only root and no token are the lab's own rules.
func TestPodsAreRestricted(t *testing.T) {
	for folder, c := range clusters(t) {
		for name, space := range c.namespaces {
			if got := space.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
				t.Errorf("%s: pods in %s may be %q", folder, name, got)
			}
		}
		for name, template := range c.pods {
			pod := template.Spec
			about := pod.SecurityContext
			switch {
			case isNot(pod.AutomountServiceAccountToken, false):
				t.Errorf("%s: %s has a token for Kubernetes", folder, name)
			case isNot(pod.EnableServiceLinks, false):
				t.Errorf("%s: %s gets variables like JAEGER_PORT", folder, name)
			case about == nil || isNot(about.RunAsNonRoot, true) || about.RunAsUser == nil || *about.RunAsUser == 0:
				t.Errorf("%s: %s may be root: %+v", folder, name, about)
			case about.SeccompProfile == nil || about.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
				t.Errorf("%s: %s may call all of the kernel: %+v", folder, name, about.SeccompProfile)
			case pod.HostNetwork || pod.HostPID || pod.HostIPC:
				t.Errorf("%s: %s is in the node's namespaces", folder, name)
			case len(pod.Containers) != 1 || len(pod.InitContainers) > 0:
				t.Errorf("%s: %s has %d containers, and the rules are for one", folder, name, len(pod.Containers))
			}
			for _, volume := range pod.Volumes {
				if volume.EmptyDir == nil && volume.ConfigMap == nil && volume.Projected == nil {
					t.Errorf("%s: %s mounts %+v", folder, name, volume)
				}
			}
			container := pod.Containers[0]
			may := container.SecurityContext
			if may == nil || isNot(may.AllowPrivilegeEscalation, false) || isNot(may.ReadOnlyRootFilesystem, true) || may.Capabilities == nil ||
				!slices.Equal(may.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(may.Capabilities.Add) > 0 || may.Privileged != nil {
				t.Errorf("%s: %s may %+v", folder, name, may)
			}
			for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := container.Resources.Requests[resource], container.Resources.Limits[resource]
				if request.IsZero() || request.Cmp(limit) > 0 {
					t.Errorf("%s: %s asks for %v of %s, with the limit %v", folder, name, request.String(), resource, limit.String())
				}
			}
			if !exact.MatchString(container.Image) && container.Image != "cachelab:local" {
				t.Errorf("%s: %s is %q: not one exact version", folder, name, container.Image)
			}
			if container.ImagePullPolicy != "" {
				t.Errorf("%s: %s pulls %s", folder, name, container.ImagePullPolicy)
			}
		}
	}
}

func isNot(value *bool, want bool) bool { return value == nil || *value != want }
