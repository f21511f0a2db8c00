package redistest

import (
	"context"
	"errors"
	"os"
	"testing"

	"cachelab/app/redisserver"
)

// StartCluster starts a Redis Cluster of n masters without replicas, and stops it when the test ends. Without a redis-server on
// the machine the test is skipped, and says so.
func StartCluster(t testing.TB, n int, args ...string) *redisserver.Cluster {
	t.Helper()
	cluster, err := redisserver.NewCluster(context.Background(), n, args...)
	must(t, err)
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// must skips the test without a redis-server, or fails it if there has to be one.
func must(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, redisserver.ErrNone) && os.Getenv(Required) != "":
		t.Fatalf("%s is set, but there is %v", Required, err)
	case errors.Is(err, redisserver.ErrNone):
		t.Skipf("%v: the tests on a real Redis are skipped", err)
	case err != nil:
		t.Fatal(err)
	}
}
