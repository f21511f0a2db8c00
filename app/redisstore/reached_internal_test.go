package redisstore

import "testing"

func TestWhatAServerTellsIsMeantFromItsOwnHost(t *testing.T) {
	for _, test := range []struct{ origin, addr, want string }{
		{"127.0.0.1:26379", "127.0.0.1:6391", "127.0.0.1:6391"},
		{"localhost:26379", "127.0.0.1:6391", "127.0.0.1:6391"},
		{"[::1]:26379", "127.0.0.1:6391", "127.0.0.1:6391"},
		{"sentinel:26379", "127.0.0.1:6391", "sentinel:6391"},
		{"sentinel:26379", "localhost:6391", "sentinel:6391"},
		{"10.0.0.5:26379", "::1:6391", "10.0.0.5:6391"},
		{"[fd00::5]:26379", "127.0.0.1:6391", "[fd00::5]:6391"},
		{"sentinel:26379", "10.0.0.7:6391", "10.0.0.7:6391"},
		{"sentinel:26379", "redis-1:6391", "redis-1:6391"},
		{"sentinel:26379", "fd00::7:6391", "[fd00::7]:6391"},
		{"cluster:7001", ":7002", "cluster:7002"},
		{"/run/redis.sock", "127.0.0.1:7002", "127.0.0.1:7002"},
		{"cluster:7001", "nothing", "nothing"},
	} {
		if got := reached(test.origin, test.addr); got != test.want {
			t.Errorf("%s tells %s: that is %s, want %s", test.origin, test.addr, got, test.want)
		}
	}
}
