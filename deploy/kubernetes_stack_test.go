package deploy

import (
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The stack in Kubernetes is that of compose.yaml: images and their tags (of .env), commands, variables, memory, and all
// files that are mounted.
func TestKubernetesRunsWhatComposeRuns(t *testing.T) {
	project, c := stack(t), kustomized(t, ".")
	for _, name := range []string{"redis", "jaeger", "prometheus", "grafana"} {
		service, pod := project.Services[name], c.pods[name].Spec
		container := pod.Containers[0]
		if container.Image != service.Image {
			t.Errorf("%s is %s, with compose %s", name, container.Image, service.Image)
		}
		if !slices.Equal(container.Args, []string(service.Command)) || len(container.Command) > 0 {
			t.Errorf("%s does %q, with compose %q", name, container.Args, service.Command)
		}
		want := map[string]string{}
		for variable := range service.Environment {
			if !strings.Contains(strings.ToLower(variable), "_proxy") { // compose keeps Docker's away
				want[variable] = environment(project, name, variable)
			}
		}
		if got := variables(container); !maps.Equal(got, want) {
			t.Errorf("%s has the variables %v, with compose %v", name, got, want)
		}
		if got := container.Resources.Limits.Memory().Value(); got != int64(service.MemLimit) {
			t.Errorf("%s has %d bytes, with compose %d", name, got, service.MemLimit)
		}
		mounted := c.files(t, pod)
		for _, mount := range service.Volumes {
			if mount.Type != types.VolumeTypeBind {
				continue
			}
			for target, text := range filesBelow(t, mount.Source, mount.Target) {
				if mounted[target] != text {
					t.Errorf("%s: %s is not what compose mounts", name, target)
				}
				delete(mounted, target)
			}
		}
		for target := range mounted {
			t.Errorf("%s: %s is not mounted with compose", name, target)
		}
	}
}

// variables are those of a container that are written down.
func variables(container corev1.Container) map[string]string {
	all := map[string]string{}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			all[variable.Name] = variable.Value
		}
	}
	return all
}

// files are those that a pod's container finds of its ConfigMaps, by their path.
func (c cluster) files(t *testing.T, pod corev1.PodSpec) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			t.Fatalf("%s is mounted, and no volume", mount.Name)
		}
		put := func(name string, items []corev1.KeyToPath) {
			config := c.configs[name]
			if config == nil || !mount.ReadOnly {
				t.Fatalf("%s is mounted of %q, read-only %v", mount.MountPath, name, mount.ReadOnly)
			}
			for key, text := range config.Data {
				to := key
				if items != nil {
					at := slices.IndexFunc(items, func(i corev1.KeyToPath) bool { return i.Key == key })
					if at < 0 {
						continue
					}
					to = items[at].Path
				}
				all[path.Join(mount.MountPath, to)] = text
			}
		}
		switch volume := pod.Volumes[i]; {
		case volume.ConfigMap != nil:
			put(volume.ConfigMap.Name, volume.ConfigMap.Items)
		case volume.Projected != nil:
			for _, source := range volume.Projected.Sources {
				put(source.ConfigMap.Name, source.ConfigMap.Items)
			}
		}
	}
	return all
}

// filesBelow are the files that a bind mount shows, by their path inside; the rules' own tests do not count.
func filesBelow(t *testing.T, source, target string) map[string]string {
	t.Helper()
	if about, err := os.Stat(source); err != nil || !about.IsDir() {
		return map[string]string{target: read(t, source)}
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		if !entry.IsDir() {
			all[path.Join(target, entry.Name())] = read(t, filepath.Join(source, entry.Name()))
		}
	}
	return all
}

// Each Service finds its pod, and each address in a variable is that of a Service.
func TestServicesLeadToPods(t *testing.T) {
	all := clusters(t)
	whole := all["."]
	for name, service := range whole.services {
		pod, ok := whole.pods[name]
		if !ok || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("the service %s finds no pod %s by %v", name, name, service.Spec.Selector)
		}
		for _, port := range service.Spec.Ports {
			if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == port.TargetPort.StrVal && p.ContainerPort == port.Port
			}) {
				t.Errorf("%s:%d leads to %v", name, port.Port, port.TargetPort)
			}
		}
	}
	addresses := 0
	for folder, c := range all {
		for name, pod := range c.pods {
			for variable, value := range variables(pod.Spec.Containers[0]) {
				address, err := url.Parse(value)
				if err != nil || address.Host == "" || address.Hostname() == "127.0.0.1" {
					continue
				}
				addresses++
				service := whole.services[address.Hostname()]
				if service == nil || !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
					return strconv.Itoa(int(p.Port)) == address.Port()
				}) {
					t.Errorf("%s: %s=%s of %s leads nowhere", folder, variable, value, name)
				}
			}
		}
	}
	if addresses < 22 {
		t.Errorf("looked at %d addresses only", addresses)
	}
}

// Redis is asked as with compose, until it answered once; the others over HTTP, always.
func TestProbes(t *testing.T) {
	project, c := stack(t), kustomized(t, ".")
	paths := map[string][2]string{
		"jaeger": {"/status", "/status"}, "prometheus": {"/-/ready", "/-/healthy"},
		"grafana": {"/api/health", "/api/health"}, "backend": {"/healthz", "/healthz"},
	}
	for name := range c.deployments {
		container := c.pods[name].Spec.Containers[0]
		if name == "redis" {
			check := project.Services[name].HealthCheck.Test
			ready := container.ReadinessProbe
			if ready == nil || ready.Exec == nil || !slices.Equal(ready.Exec.Command, []string{"sh", "-c", check[1]}) ||
				container.LivenessProbe != nil || container.StartupProbe != nil {
				t.Errorf("redis is asked by %+v, with compose %q", ready, check)
			}
			continue
		}
		for i, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != paths[name][i] ||
				!slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal }) {
				t.Errorf("probe %d of %s is %+v", i, name, probe)
			}
		}
	}
}
