package deploy

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The coordinator waits for as many workers as compose starts, and all of them call one backend.
func TestTheFleetIsAsLargeAsItsCoordinatorThinks(t *testing.T) {
	for _, test := range []struct {
		variables            []string
		mode, rounds, worker string
		joiners              int
	}{
		{nil, "fixed", "5", "50", 4},
		{[]string{"FLEET_JOINERS=7", "FLEET_MODE=broken", "FLEET_ROUNDS=2", "FLEET_WORKERS=20"}, "broken", "2", "20", 7},
	} {
		project := stack(t, test.variables...)
		worker, coordinator := project.Services["worker"], project.Services["coordinator"]
		joiners := environment(project, "coordinator", "CACHELAB_JOINERS")
		if replicas := worker.Deploy.Replicas; replicas == nil || *replicas != test.joiners || joiners != strconv.Itoa(test.joiners) {
			t.Errorf("%q: %v workers, and the coordinator waits for %s", test.variables, worker.Deploy.Replicas, joiners)
		}
		if !slices.Equal(coordinator.Command, []string{test.mode}) || environment(project, "coordinator", "CACHELAB_ROUNDS") != test.rounds ||
			environment(project, "coordinator", "CACHELAB_WORKERS") != test.worker {
			t.Errorf("%q: the coordinator does %q", test.variables, coordinator.Command)
		}
	}

	project := stack(t)
	_, listens, _ := strings.Cut(environment(project, "backend", "CACHELAB_LISTEN"), ":")
	for _, name := range []string{"coordinator", "worker"} {
		if address, err := url.Parse(environment(project, name, "CACHELAB_BACKEND")); err != nil || address.Hostname() != "backend" || address.Port() != listens {
			t.Errorf("%s calls %v, the backend listens on %s: %v", name, address, listens, err)
		}
		// whose settings differ is refused
		for variable := range project.Services["worker"].Environment {
			if a, b := environment(project, "worker", variable), environment(project, "coordinator", variable); a != b {
				t.Errorf("%s is %q for a worker, %q for the coordinator", variable, a, b)
			}
		}
	}
}
