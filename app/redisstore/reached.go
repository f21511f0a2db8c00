package redisstore

import (
	"net"
	"strings"
)

// reached is where the address is reached that a server at origin tells. Without a host it means the one at which
// it was reached; and a loopback address is one of its own host, which is not always ours. go-redis does the same for what
// nodes of a cluster say of their slots.
func reached(origin, addr string) string {
	at := strings.LastIndexByte(addr, ':')
	there, _, err := net.SplitHostPort(origin)
	if at < 0 || err != nil {
		return addr
	}
	host := strings.Trim(addr[:at], "[]")
	if host == "" || isLoopback(host) && !isLoopback(there) {
		host = there
	}
	return net.JoinHostPort(host, addr[at+1:])
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost"
}
