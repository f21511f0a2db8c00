package redisstore_test

import (
	"testing"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

// The processes of a run share their connections: Redis has buffers for each.
func TestTheConnectionsOfAProcess(t *testing.T) {
	for _, test := range []struct {
		workers, herd int // of the process, of all
		want          int
	}{
		{1, 1, 1}, {50, 50, 50}, {64, 64, 64}, {500, 500, 64},
		{60, 120, 60},     // of two processes
		{500, 1000, 64},   // likewise
		{60, 480, 16},     // of eight
		{625, 10_000, 8},  // of sixteen
		{100, 10_000, 8},  // of a hundred
		{1, 10_000, 1},    // a coordinator's
		{5, 5 * 1_000, 5}, // of a thousand
	} {
		r := open(t, redistest.Start(t).Addr(), func(o *redisstore.Options) { o.Workers, o.Herd = test.workers, test.herd })
		if got := r.Dialled() - 1; got != test.want { // one is the housekeeping's
			t.Errorf("%d workers of %d: %d connections, want %d", test.workers, test.herd, got, test.want)
		}
	}
}
