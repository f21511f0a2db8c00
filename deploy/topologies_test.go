package deploy

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The profiles cluster and sentinel without Docker: what compose.yaml starts on one host, on free ports of this one.
type topology struct {
	t       *testing.T
	nodes   map[string]*exec.Cmd
	folders map[string]string // their working folders
	profile string
	ports   map[string]string
}

// topologyLimit is how long a change may take to be known everywhere.
const topologyLimit = time.Minute

// startTopology starts the nodes of a profile with compose's commands, and waits for its health checks.
func startTopology(t *testing.T, profile string) *topology {
	t.Helper()
	t.Parallel()
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the nodes of the profile %s are not tried: %v", profile, err)
		}
	}
	o := &topology{t: t, profile: profile, nodes: map[string]*exec.Cmd{}, folders: map[string]string{}, ports: map[string]string{}}
	for variable, host := range announced {
		if host == profile {
			o.ports[variable] = portWithBus(t)
		}
	}
	for name, service := range stack(t).Services {
		if service.NetworkMode == "service:"+profile {
			o.folders[name] = t.TempDir()
			o.start(name)
		}
	}
	for name := range o.nodes {
		o.healthy(name)
	}
	return o
}

// start runs a node's command as its container does.
func (o *topology) start(name string) {
	o.t.Helper()
	node := o.command(name, o.service(name).Command)
	if err := node.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.nodes[name] = node
	o.t.Cleanup(func() { o.kill(name) })
}

func (o *topology) kill(name string) {
	if node := o.nodes[name]; node != nil {
		_ = node.Process.Kill() // it may have ended
		_ = node.Wait()
		delete(o.nodes, name)
	}
}

// healthy waits until the health check of a node succeeds.
func (o *topology) healthy(name string) {
	o.t.Helper()
	eventually(o.t, topologyLimit, name+" is healthy", func() error { return o.command(name, o.service(name).HealthCheck.Test[1:]).Run() })
}

func (o *topology) service(name string) (s struct {
	Command     []string
	HealthCheck struct{ Test []string }
}) {
	o.t.Helper()
	var variables []string
	for variable, port := range o.ports {
		variables = append(variables, variable+"="+port)
	}
	service := stack(o.t, variables...).Services[name]
	s.Command, s.HealthCheck.Test = service.Command, service.HealthCheck.Test
	return s
}

func (o *topology) command(name string, arguments []string) *exec.Cmd {
	o.t.Helper()
	scripts, err := filepath.Abs("redis")
	if err != nil {
		o.t.Fatal(err)
	}
	arguments = slices.Clone(arguments)
	arguments[0] = strings.Replace(arguments[0], "/etc/redis", scripts, 1)
	command := exec.CommandContext(o.t.Context(), arguments[0], arguments[1:]...)
	command.Dir = o.folders[name]
	return command
}

// ask is redis-cli's answer, in one line.
func (o *topology) ask(variable string, arguments ...string) string {
	out, err := exec.CommandContext(o.t.Context(), "redis-cli", append([]string{"-p", o.ports[variable]}, arguments...)...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// portWithBus is a free port whose cluster bus, 10,000 above, is free too.
func portWithBus(t *testing.T) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		defer listener.Close() // all at once, so that all differ
		bus, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000))
		if err != nil {
			continue // or there is no such port
		}
		bus.Close()
		return strconv.Itoa(port)
	}
}

// Each node is found at the address that a lab outside reaches, whichever is asked, and comes back as itself.
func TestTheClusterIsOneAndMendsItself(t *testing.T) {
	o := startTopology(t, "cluster")
	var want []string
	for i, slots := range []string{"0 5460", "5461 10922", "10923 16383"} {
		want = append(want, fmt.Sprintf("%s 127.0.0.1 %s %040d", slots, o.ports[fmt.Sprintf("CLUSTER_PORT_%d", i+1)], i+1))
	}
	whole := func() error {
		for variable := range o.ports {
			if got := o.ask(variable, "cluster", "slots"); got != strings.Join(want, " ") {
				return fmt.Errorf("%s says %q, want %q", variable, got, want)
			}
			if got := o.ask(variable, "cluster", "info"); !strings.Contains(got, "cluster_state:ok") {
				return fmt.Errorf("%s says %q", variable, got)
			}
		}
		return nil
	}
	if err := whole(); err != nil {
		t.Error(err)
	}
	o.kill("cluster-node-1")
	eventually(o.t, topologyLimit, "the cluster is down", func() error {
		if got := o.ask("CLUSTER_PORT_2", "cluster", "info"); !strings.Contains(got, "cluster_state:fail") {
			return fmt.Errorf("node 2 says %q", got)
		}
		return nil
	})
	o.start("cluster-node-1")
	eventually(o.t, topologyLimit, "the cluster is whole again", whole)
}

// The sentinels name an address that a lab outside reaches, also that of the next master, and to a sentinel that begins anew.
func TestTheSentinelsFollowTheMaster(t *testing.T) {
	o := startTopology(t, "sentinel")
	sentinels := []string{"SENTINEL_PORT_1", "SENTINEL_PORT_2", "SENTINEL_PORT_3"}
	master := func(variable string) string {
		return o.ask(variable, "sentinel", "get-master-addr-by-name", "mymaster")
	}
	first := "127.0.0.1 " + o.ports["SENTINEL_MASTER_PORT"]
	for _, variable := range sentinels {
		if got := master(variable); got != first {
			t.Errorf("%s says %q, want %q", variable, got, first)
		}
	}
	o.kill("sentinel-master")
	o.kill("sentinel-node-1")
	o.start("sentinel-node-1")
	next := []string{"127.0.0.1 " + o.ports["SENTINEL_REPLICA_PORT_1"], "127.0.0.1 " + o.ports["SENTINEL_REPLICA_PORT_2"]}
	eventually(o.t, topologyLimit, "a replica is the master", func() error {
		for _, variable := range sentinels {
			if got := master(variable); !slices.Contains(next, got) || got != master(sentinels[0]) {
				return fmt.Errorf("%s says %q, want one of %q", variable, got, next)
			}
		}
		return nil
	})
	o.start("sentinel-master")
	eventually(o.t, topologyLimit, "the first master is a replica", func() error {
		if got := o.ask("SENTINEL_MASTER_PORT", "role"); !strings.HasPrefix(got, "slave "+master(sentinels[0])) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}
