package deploy

import (
	"fmt"
	"go/version"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

func TestMountsExistAndAreReadOnly(t *testing.T) {
	project := stack(t)
	for name, service := range project.Services {
		for _, mount := range service.Volumes {
			switch mount.Type {
			case types.VolumeTypeBind:
				if !mount.ReadOnly {
					t.Errorf("%s may write to %s", name, mount.Source)
				}
				if mount.Bind == nil || mount.Bind.SELinux != "z" {
					t.Errorf("SELinux keeps %s from %s: it has not the label of all containers", name, mount.Source)
				}
				if _, err := os.Stat(mount.Source); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			case types.VolumeTypeVolume:
				if _, ok := project.Volumes[mount.Source]; !ok || mount.Source == "" {
					t.Errorf("%s mounts a volume without a name on %s: each `up` would leave one behind", name, mount.Target)
				}
			default:
				t.Errorf("%s mounts a %s", name, mount.Type)
			}
		}
	}
}

// outside lists the published ports as "service:inside" -> "address:outside".
func outside(t *testing.T, project *types.Project) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for name, service := range project.Services {
		for _, port := range service.Ports {
			ports[fmt.Sprintf("%s:%d", name, port.Target)] = port.HostIP + ":" + port.Published
		}
	}
	return ports
}

func TestPortsFollowTheirVariables(t *testing.T) {
	project := stack(t)
	before := outside(t, project)
	if len(before) != len(published)+len(announced) {
		t.Errorf("published are %v, known to the test are %v and %v", before, published, announced)
	}
	for variable, host := range announced {
		for _, port := range []string{project.Environment[variable], "23456"} {
			key := host + ":" + port
			if got := outside(t, stack(t, variable+"="+port))[key]; got != "127.0.0.1:"+port {
				t.Errorf("%s=%s: %s is published as %q: an announced port is the same inside and outside", variable, port, key, got)
			}
		}
	}
	for variable, port := range published {
		t.Run(variable, func(t *testing.T) {
			want := maps.Clone(before)
			key := fmt.Sprintf("%s:%d", port.service, port.inside)
			if now := "127.0.0.1:" + project.Environment[variable]; before[key] != now {
				t.Errorf("%s is published as %s, want %s", key, before[key], now)
			}
			want[key] = "127.0.0.1:23456"
			changed := stack(t, variable+"=23456")
			if got := outside(t, changed); !maps.Equal(got, want) {
				t.Errorf("%s=23456 publishes %v, want %v", variable, got, want)
			}
			// inside the network the addresses stay
			for _, name := range []string{"CACHELAB_REDIS", "CACHELAB_JAEGER_API", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
				if a, b := environment(project, "lab", name), environment(changed, "lab", name); a == "" || a != b {
					t.Errorf("%s=23456 changes the lab's %s from %q to %q", variable, name, a, b)
				}
			}
		})
	}
}

// The addresses that are printed or linked for a browser follow, too.
func TestLinksFollowTheirVariables(t *testing.T) {
	project := stack(t, "JAEGER_PORT=23456", "GRAFANA_PORT=23457")
	for _, link := range []struct{ service, name, want string }{
		{"lab", "CACHELAB_JAEGER_URL", "http://127.0.0.1:23456"},
		{"lab", "CACHELAB_GRAFANA_URL", "http://127.0.0.1:23457"},
		{"grafana", "GF_SERVER_ROOT_URL", "http://127.0.0.1:23457/"},
		{"grafana", "JAEGER_PORT", "23456"},
	} {
		if got := environment(project, link.service, link.name); got != link.want {
			t.Errorf("%s has %s=%s, want %s", link.service, link.name, got, link.want)
		}
	}
}

// Docker's config.json may hand a proxy to every container. busybox's wget, which asks whether a part is healthy, would ask
// the proxy for 127.0.0.1, and Grafana for prometheus.
func TestNoProxyBetweenTheParts(t *testing.T) {
	for name, service := range stack(t).Services {
		if strings.HasPrefix(service.Image, "redis:") {
			continue // speaks no HTTP
		}
		for _, variable := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
			if value, ok := service.Environment[variable]; !ok || value == nil || *value != "" {
				t.Errorf("%s takes %s from elsewhere: %v", name, variable, value)
			}
		}
	}
}

var exact = regexp.MustCompile(`:v?[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$`)

func TestImagesArePinned(t *testing.T) {
	for name, service := range stack(t).Services {
		switch {
		case service.Build != nil:
			if service.Image != "" {
				t.Errorf("%s is built here, and yet named %s", name, service.Image)
			}
		case !exact.MatchString(service.Image):
			t.Errorf("%s is %q: not one exact version", name, service.Image)
		}
	}
}

// The Dockerfile's only foreign image is one exact Go, new enough for go.mod.
func TestDockerfileIsPinned(t *testing.T) {
	asked := find(t, "../go.mod", `(?m)^go ([0-9.]+)$`)
	built := find(t, "Dockerfile", `(?m)^ARG GO_VERSION=([0-9]+\.[0-9]+\.[0-9]+)$`)
	if version.Compare("go"+built, "go"+asked) < 0 {
		t.Errorf("the Dockerfile builds with Go %s, go.mod asks for %s", built, asked)
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		if !slices.Contains([]string{"golang:${GO_VERSION}-alpine", "scratch", "${BINARY}"}, from[1]) {
			t.Errorf("the Dockerfile starts from %s", from[1])
		}
	}
}

// The linker says nothing of a variable that is not there; the end-to-end test looks at the Makefile's.
func TestTheImageKnowsItsVersionAsTheProgramDoes(t *testing.T) {
	want := find(t, "../Makefile", `-X (\S+=)`)
	for _, sets := range regexp.MustCompile(`-X (\S+=)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		if sets[1] != want {
			t.Errorf("the Dockerfile sets %s, the Makefile %s", sets[1], want)
		}
	}
	lab := stack(t, "VERSION=v1.2.3").Services["lab"]
	if got := lab.Build.Args["VERSION"]; got == nil || *got != "v1.2.3" || !strings.Contains(read(t, "Dockerfile"), "ARG VERSION\n") {
		t.Errorf("compose builds the image with %v", lab.Build.Args)
	}
}

// The end-to-end test runs the very Prometheus that compose.yaml runs: module v0.313.1 is release 3.13.1.
func TestServersArePinnedAlike(t *testing.T) {
	parts := strings.Split(stack(t).Environment["PROMETHEUS_VERSION"], ".")
	if len(parts) != 3 {
		t.Fatalf("PROMETHEUS_VERSION=%s", strings.Join(parts, "."))
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("v0.%s%02d.%s", parts[0], minor, parts[2])
	if got := find(t, "servers/prometheus/go.mod", `github.com/prometheus/prometheus (v[0-9.]+)`); got != want {
		t.Errorf("servers/prometheus builds %s, .env names %s = %s", got, strings.Join(parts, "."), want)
	}
}

func TestHealthChecks(t *testing.T) {
	for name, service := range stack(t).Services {
		reason, _ := service.Extensions["x-no-healthcheck"].(string)
		checked := service.HealthCheck != nil && !service.HealthCheck.Disable && len(service.HealthCheck.Test) > 1
		if checked == (reason != "") {
			t.Errorf("%s needs a health check, or the reason why it has none: %v, %q", name, service.HealthCheck, reason)
		}
		if reason != "" && len(service.Profiles) == 0 {
			t.Errorf("%s is in no profile: it would come up unasked, and be waited for", name)
		}
	}
}

// Redis is asked until it answered once, and then left alone: the lab compares its own counts with the server's, and
// those of a server that others use prove nothing.
func TestRedisIsAskedOnce(t *testing.T) {
	folder := t.TempDir()
	check := stack(t).Services["redis"].HealthCheck.Test
	if len(check) != 2 || check[0] != "CMD-SHELL" || !strings.Contains(check[1], "/data/") {
		t.Fatalf("the check is %q", check)
	}
	calls := 0
	ask := func(answer string) error {
		client := "#!/bin/sh\necho >>" + folder + "/calls\n" + answer + "\n"
		if err := os.WriteFile(filepath.Join(folder, "redis-cli"), []byte(client), 0o755); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(check[1], "/data/", folder+"/"))
		command.Env = []string{"PATH=" + folder}
		err := command.Run()
		calls = strings.Count(read(t, folder+"/calls"), "\n")
		return err
	}
	if err := ask("exit 1"); err == nil || calls != 1 {
		t.Errorf("no answer: %v after %d calls, want an error", err, calls)
	}
	for range 3 {
		if err := ask("echo PONG"); err != nil || calls != 2 {
			t.Errorf("an answer: %v after %d calls in all, want 2", err, calls)
		}
	}
}

// Each part that stays up has a limit, and the Go runtime, or Redis, knows of it before the kernel does.
func TestMemoryLimits(t *testing.T) {
	project := stack(t)
	for name, service := range project.Services {
		if len(service.Profiles) > 0 {
			continue
		}
		limit := int(service.MemLimit)
		soft, share := environment(project, name, "GOMEMLIMIT"), 0.9
		if m := regexp.MustCompile(`--maxmemory (\d+)mb `).FindStringSubmatch(strings.Join(service.Command, " ")); m != nil {
			soft, share = m[1]+"MiB", 0.5 // the rest is for connections and modules
		}
		n, err := strconv.Atoi(strings.TrimSuffix(soft, "MiB"))
		if err != nil || float64(n<<20) > share*float64(limit) {
			t.Errorf("%s keeps to %q by itself (%v), too near to its limit of %d MiB", name, soft, err, limit>>20)
		}
	}
}

func TestNoSecrets(t *testing.T) {
	secret := regexp.MustCompile(`(?i)passw|secret|token|api_?key|credential|://[^/]*:[^/]*@`)
	project := stack(t)
	if len(project.Secrets) > 0 {
		t.Errorf("secrets %v", project.Secrets)
	}
	for name, service := range project.Services {
		if len(service.EnvFiles) > 0 || len(service.Secrets) > 0 {
			t.Errorf("%s has env files %v, secrets %v", name, service.EnvFiles, service.Secrets)
		}
		for variable := range service.Environment {
			if line := variable + "=" + environment(project, name, variable); secret.MatchString(line) {
				t.Errorf("%s has %s", name, line)
			}
		}
	}
	if found := secret.FindString(read(t, "../.env")); found != "" {
		t.Errorf(".env speaks of %q", found)
	}
}

// Grafana finds what its provisioning speaks of: dashboards where they are mounted, the home dashboard among them, every
// variable in its environment. Values of a link are Grafana's own: a single $ would be a variable of the container.
func TestProvisioning(t *testing.T) {
	project := stack(t)
	grafana := project.Services["grafana"]
	mounted := map[string]string{}
	for _, mount := range grafana.Volumes {
		mounted[mount.Target] = mount.Source
	}

	var sources struct {
		Datasources []struct {
			UID, URL string
			JSONData struct {
				TimeInterval string `yaml:"timeInterval"`
				Exemplars    []struct {
					UID string `yaml:"datasourceUid"`
				} `yaml:"exemplarTraceIdDestinations"`
			} `yaml:"jsonData"`
		}
	}
	var providers struct {
		Providers []struct {
			Options struct{ Path string }
		}
	}
	provision(t, mounted["/etc/grafana/provisioning/datasources"], grafana, &sources)
	provision(t, mounted["/etc/grafana/provisioning/dashboards"], grafana, &providers)

	known := map[string]bool{"": true} // a link may name an address instead
	for _, source := range sources.Datasources {
		known[source.UID] = true
	}
	for _, source := range sources.Datasources {
		if source.UID == "prometheus" && source.JSONData.TimeInterval != "1s" {
			t.Errorf("timeInterval %q is not the push interval: panels would have no data", source.JSONData.TimeInterval)
		}
		for _, link := range source.JSONData.Exemplars {
			if !known[link.UID] {
				t.Errorf("an exemplar leads to the data source %q, which is not provisioned", link.UID)
			}
		}
		if address, err := url.Parse(source.URL); err != nil || project.Services[address.Hostname()].Name == "" {
			t.Errorf("the data source at %s is no service: %v", source.URL, err)
		}
	}

	for _, provider := range providers.Providers {
		if mounted[provider.Options.Path] == "" {
			t.Errorf("no dashboards are mounted on %s", provider.Options.Path)
		}
	}
	home := environment(project, "grafana", "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH")
	if _, err := os.Stat(filepath.Join(mounted[filepath.Dir(home)], filepath.Base(home))); err != nil {
		t.Errorf("the home dashboard: %v", err)
	}
}

// provision reads the only file of a provisioning folder.
func provision(t *testing.T, folder string, grafana types.ServiceConfig, into any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s holds %v, %v", folder, files, err)
	}
	text := read(t, files[0])
	for _, variable := range regexp.MustCompile(`(\$*)\$\{(\w+)`).FindAllStringSubmatch(text, -1) {
		if _, ok := grafana.Environment[variable[2]]; !ok && variable[1] == "" {
			t.Errorf("%s needs %s, which the container does not have", files[0], variable[2])
		}
	}
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// Jaeger's page links the tag that the lab writes.
func TestJaegerLinksTracesToTheDashboard(t *testing.T) {
	project := stack(t)
	path := environment(project, "jaeger", "JAEGER_UI_CONFIG")
	i := slices.IndexFunc(project.Services["jaeger"].Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == path })
	if i < 0 || !strings.HasSuffix(path, ".js") {
		t.Fatalf("nothing is mounted on %q", path)
	}
	page := project.Services["jaeger"].Volumes[i].Source
	find(t, page, `(function UIConfig\(\))`) // what Jaeger looks for
	tag := find(t, filepath.Join("..", "telemetry", "names.go"), `Dashboard += attribute.Key\("(\w+)"\)`)
	for _, expression := range []string{`key: "(\w+)"`, `parameters: \["(\w+)"\]`, `tags\.(\w+) \}`} {
		if got := find(t, page, expression); got != tag {
			t.Errorf("%s is %q, the lab writes %q", expression, got, tag)
		}
	}
}
