package redistest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/redisserver"
)

// StartCluster starts a Redis Cluster of n masters without replicas, and stops it when the test ends. Without a redis-server on
// the machine the test is skipped, and says so.
func StartCluster(t testing.TB, n int, args ...string) *redisserver.Cluster {
	t.Helper()
	cluster, err := redisserver.NewCluster(context.Background(), n, args...)
	must(t, err)
	closeAfter(t, cluster.Close)
	return cluster
}

// Watched are a master, its replicas, and sentinels that watch them under the name mymaster.
type Watched struct {
	Master    *Server
	Replicas  []*Server
	Sentinels []*redisserver.Sentinel
}

// URL is that of the first sentinel.
func (w Watched) URL() string { return "redis://" + w.Sentinels[0].Addr() }

// StartWatched starts a master, replicas and sentinels, and waits until all know each other. They stop when the test ends. The
// sentinels take a master for gone after half a second.
func StartWatched(t testing.TB, replicas, sentinels int) Watched {
	t.Helper()
	w := Watched{Master: Start(t)}
	for range replicas {
		w.Replicas = append(w.Replicas, Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(w.Master.Port)))
	}
	for range sentinels {
		w.Sentinels = append(w.Sentinels, StartSentinel(t, sentinels/2+1, map[string]string{"mymaster": w.Master.Addr()}))
	}
	for _, sentinel := range w.Sentinels {
		client := redis.NewClient(&redis.Options{Addr: sentinel.Addr()})
		defer client.Close()
		Eventually(t, func() bool {
			info := client.Info(t.Context(), "sentinel").Val()
			return strings.Contains(info, "status=ok") && strings.Contains(info, ",slaves="+strconv.Itoa(replicas)+",sentinels="+strconv.Itoa(sentinels))
		})
	}
	master := redis.NewClient(&redis.Options{Addr: w.Master.Addr()})
	defer master.Close()
	Eventually(t, func() bool {
		return strings.Count(master.Info(t.Context(), "replication").Val(), "state=online") == replicas
	})
	return w
}

// StartLoneNode starts a node of a cluster that nobody has made, and stops it when the test ends. Its port for the others is
// one that is free: the usual one, 10,000 above, may be taken by whoever connects anywhere.
func StartLoneNode(t testing.TB) *Server {
	t.Helper()
	return Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--dir", t.TempDir(), "--cluster-port", FreePort(t))
}

// StartSentinel starts a sentinel that watches masters, addresses by name, and stops it when the test ends.
func StartSentinel(t testing.TB, quorum int, masters map[string]string) *redisserver.Sentinel {
	t.Helper()
	sentinel, err := redisserver.NewSentinel(context.Background(), quorum, 500*time.Millisecond, masters)
	must(t, err)
	closeAfter(t, sentinel.Close)
	return sentinel
}

// Eventually waits for what servers agree on by themselves.
func Eventually(t testing.TB, agreed func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !agreed(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the servers did not agree within a minute")
		}
	}
}

func closeAfter(t testing.TB, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
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

// FreePort is a port of 127.0.0.1 that nobody uses.
func FreePort(t testing.TB) string {
	t.Helper()
	port, err := redisserver.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
