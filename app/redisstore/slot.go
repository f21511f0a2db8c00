package redisstore

import (
	"fmt"
	"strings"

	"cachelab/app/cache"
)

// LockKey returns the name of the fill lock of key: the usual one, but for strategies that name both in one command, which a
// cluster takes only when both are in one slot. A slot is made of what stands in the first braces (the hash tag), if there is
// something, or else of the whole key. So a key with a hash tag shares it with its usual lock; one without braces becomes the
// tag of its lock; and for other keys with braces there is an error.
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags)
func (r *Redis) LockKey(key string, inOneCommand bool) (string, error) {
	usual := cache.LockKey(key)
	switch {
	case r.kind != Cluster || !inOneCommand || hasTag(key):
		return usual, nil
	case strings.ContainsAny(key, "{}"):
		return usual, fmt.Errorf("no fill lock of %q is in its slot of the cluster: its braces are no hash tag; choose a --key without braces, or with one {tag} in it", key)
	}
	return cache.LockKey("{" + key + "}"), nil
}

func hasTag(key string) bool {
	_, after, opens := strings.Cut(key, "{")
	tag, _, closes := strings.Cut(after, "}")
	return opens && closes && tag != ""
}
