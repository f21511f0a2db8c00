package redisstore_test

import (
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

const (
	hotKey  = "product:42:price"
	hotLock = hotKey + ":filling"
)

// prepare is what the lab does before a run with 50 workers.
func prepare(t *testing.T, url, lockKey string) error {
	t.Helper()
	target, err := redisstore.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	return prepareAt(t, target, lockKey)
}

func prepareAt(t *testing.T, target redisstore.Target, lockKey string) error {
	t.Helper()
	redisstore.DiscardClientLog()
	r, err := redisstore.Open(t.Context(), redisstore.Options{Target: target, Workers: 50, Name: "cachelab-test"})
	if err != nil {
		return err
	}
	_, err = r.Locked(t.Context(), hotLock)
	if err == nil {
		err = r.Forget(t.Context(), hotKey, anyValue)
	}
	if err == nil {
		err = r.Preflight(t.Context(), redisstore.Trial{Key: hotKey, Value: "19.99", Lock: lockKey, InOneCommand: lockKey != ""})
	}
	return errors.Join(err, r.Close())
}

// user starts a server whose only user has these rights.
func user(t *testing.T, rights ...string) string {
	return redistest.Start(t, append([]string{"--user", "default", "on", "nopass"}, rights...)...).URL()
}

// refuse starts a server that answers one command, by its name or by a word in it, with an error.
func refuse(word, words string) func(*testing.T) string {
	return script(func(command []string) string {
		if slices.Contains(command, word) {
			return redistest.Err(words)
		}
		return redistest.Absent(command)
	})
}

func script(s redistest.Script) func(*testing.T) string {
	return func(t *testing.T) string { return redistest.StartScript(t, s) }
}

// old is a server of a version that knows no NX beside GET, and before 6.2 no GET in SET.
func old(version string, setGet bool, info string) func(*testing.T) string {
	return script(func(command []string) string {
		switch {
		case command[0] == "info":
			return info
		case len(command) == 1 && command[0] == "HELLO":
			return "*4\r\n" + redistest.Bulk("server") + redistest.Bulk("redis") + redistest.Bulk("version") + redistest.Bulk(version)
		case strings.EqualFold(command[0], "set") && slices.Contains(command, "GET") && (!setGet || slices.Contains(command, "NX")):
			return redistest.Err("ERR syntax error")
		}
		return redistest.Absent(command)
	})
}

func version(v string) string {
	return redistest.Bulk("# Server\r\nredis_version:" + v + "\r\nredis_mode:standalone\r\n")
}

// Each cause by which a Redis cannot be used is named within 3 s: what was tried, the server's words, what to do.
func TestWhatRedisRefusesIsNamedBeforeTheRun(t *testing.T) {
	for _, test := range []struct {
		name string
		url  func(*testing.T) string
		want []string
	}{
		{"no EVAL", func(t *testing.T) string { return user(t, "~*", "+@all", "-eval") },
			[]string{`tried EVAL (store "product:42:price" and delete "product:42:price:filling") at redis://127.0.0.1:`, "NOPERM", "to run the 'eval' command", "ACL SETUSER NAME +eval"}},
		{"no GET", func(t *testing.T) string { return user(t, "~*", "+@all", "-get") }, []string{`tried GET "product:42:price:filling"`, "NOPERM", "+get"}},
		{"no SET", func(t *testing.T) string { return user(t, "~*", "+@all", "-set") },
			[]string{`tried SET "product:42:price:filling" NX GET PX`, "NOPERM", "+set"}},
		{"no DEL", func(t *testing.T) string { return user(t, "~*", "+@all", "-del") }, []string{`tried DEL "product:42:price"`, "NOPERM", "+del"}},
		{"no PTTL", func(t *testing.T) string { return user(t, "~*", "+@all", "-pttl") }, []string{`tried PTTL "product:42:price"`, "NOPERM", "+pttl"}},
		{"no right on the lock", func(t *testing.T) string { return user(t, "~"+hotKey, "+@all") },
			[]string{`tried GET "product:42:price:filling"`, "NOPERM", "~KEY:filling"}},
		{"read-only on the key", func(t *testing.T) string { return user(t, "%R~*", "%W~"+hotLock, "+@all") },
			[]string{`tried DEL "product:42:price"`, "NOPERM", "~KEY ~KEY:filling"}},
		{"NOPERM of Redis 6.2", refuse("eval", "NOPERM this user has no permissions to run the 'eval' command or its subcommand"), []string{"ACL SETUSER NAME +eval"}},
		{"NOPERM of Redis 8", refuse("eval", "NOPERM User alice has no permissions to run the 'eval' command"), []string{"ACL SETUSER NAME +eval"}},
		{"no rights in scripts", refuse("eval", "ERR The user executing the script can't run this command or subcommand script: bb69, on @user_script:1."),
			[]string{"can't run this command", "grant +get and +del"}},
		{"NOPERM on keys of Redis 8", refuse("GET", "NOPERM No permissions to access a key"), []string{"~KEY ~KEY:filling"}},
		{"full", func(t *testing.T) string { return redistest.Start(t, "--maxmemory", "1").URL() },
			[]string{`tried SET "product:42:price:filling" NX GET PX`, "OOM command not allowed when used memory > 'maxmemory'", "raise maxmemory"}},
		{"Redis 6.2", old("6.2.7", true, version("6.2.7")),
			[]string{`tried SET "product:42:price:filling" NX GET PX`, "ERR syntax error", "the lab needs Redis 7.0, this is 6.2.7"}},
		{"Redis 6.0", old("6.0.16", false, version("6.0.16")), []string{"ERR syntax error", "the lab needs Redis 7.0, this is 6.0.16"}},
		{"Redis 6.2 without INFO", old("6.2.7", true, redistest.Err("NOPERM this user has no permissions to run the 'info' command")),
			[]string{"the lab needs Redis 7.0, this is 6.2.7"}},
		{"another node's slot", refuse(hotLock, "MOVED 11224 127.0.0.1:7001"), []string{"MOVED 11224 127.0.0.1:7001", "a node of a Redis Cluster"}},
		{"a replica", func(t *testing.T) string {
			master := redistest.Start(t)
			return redistest.Start(t, "--replicaof", "127.0.0.1 "+master.Addr()[len("127.0.0.1:"):], "--replica-serve-stale-data", "yes").URL()
		}, []string{`tried DEL "product:42:price"`, "READONLY You can't write against a read only replica", "give its master"}},
		{"a replica alone", refuse("get", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), []string{"MASTERDOWN", "give the master"}},
		{"too few replicas", func(t *testing.T) string { return redistest.Start(t, "--min-replicas-to-write", "1").URL() },
			[]string{"NOREPLICAS Not enough good replicas to write", "min-replicas-to-write"}},
		{"loading", script(func([]string) string { return redistest.Err("LOADING Redis is loading the dataset in memory") }),
			[]string{"tried PING", "LOADING Redis is loading the dataset in memory", "wait and try again"}},
		{"cannot save", refuse("del", "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
			[]string{`tried DEL "product:42:price"`, "MISCONF", "stop-writes-on-bgsave-error no"}},
		{"busy", refuse("get", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), []string{"BUSY", "SCRIPT KILL"}},
		{"a list at the key", func(t *testing.T) string { return list(t, hotKey) }, []string{`tried GET "product:42:price"`, "WRONGTYPE", "choose another --key"}},
		{"a list at the lock", func(t *testing.T) string { return list(t, hotLock) }, []string{`tried GET "product:42:price:filling"`, "WRONGTYPE", "choose another --key"}},
		{"30 connections", func(t *testing.T) string { return redistest.Start(t, "--maxclients", "30").URL() },
			[]string{"tried PING on 50 connections", "ERR max number of clients reached", "raise its maxclients", "fewer --workers"}},
		{"no connections", func(t *testing.T) string {
			server := redistest.Start(t, "--maxclients", "1")
			conn, err := net.Dial("tcp", server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if _, err := conn.Write([]byte("PING\r\n")); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 7)); err != nil { // it has the one
				t.Fatal(err)
			}
			return server.URL()
		}, []string{"tried PING", "ERR max number of clients reached", "raise its maxclients"}},
		{"protected", script(func([]string) string {
			return redistest.Err("DENIED Redis is running in protected mode because protected mode is enabled")
		}), []string{"DENIED", "protected-mode no"}},
		{"no such database", func(t *testing.T) string { return redistest.Start(t).URL() + "/99" }, []string{"ERR DB index is out of range", "smaller number"}},
		{"a sentinel", refuse("get", "ERR unknown command 'get', with args beginning with: 'product:42:price:filling'"), []string{"unknown command", "sentinel"}},
		{"HTTP", func(t *testing.T) string {
			server := httptest.NewServer(nil)
			t.Cleanup(server.Close)
			return "redis://" + server.Listener.Addr().String()
		}, []string{"HTTP/1.1 400 Bad Request", "that is no Redis"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := test.url(t)
			started := time.Now()
			err := prepare(t, url, hotLock)
			if took := time.Since(started); took > 3*time.Second {
				t.Errorf("took %v, want at most 3 s", took)
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not said: %s\nbut: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func list(t *testing.T, key string) string {
	server := redistest.Start(t)
	stranger := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() {
		if n, err := stranger.LLen(t.Context(), key).Result(); t.Context().Err() == nil && (n != 1 || err != nil) {
			t.Errorf("the list afterwards: %d, %v", n, err)
		}
		stranger.Close()
	})
	if err := errors.Join(stranger.RPush(t.Context(), key, "theirs").Err(), stranger.Expire(t.Context(), key, time.Hour).Err()); err != nil {
		t.Fatal(err)
	}
	return server.URL()
}

// Only what the strategies need is needed: all else may be refused.
func TestWhatIsNotNeededMayBeRefused(t *testing.T) {
	for _, test := range []struct {
		name, lock string
		url        func(*testing.T) string
	}{
		{"few rights", hotLock, func(t *testing.T) string {
			return user(t, "~"+hotKey, "~"+hotLock, "+get", "+set", "+del", "+pttl", "+eval")
		}},
		{"no CLIENT", hotLock, func(t *testing.T) string { return user(t, "~*", "+@all", "-client") }},
		{"no INFO", hotLock, func(t *testing.T) string { return user(t, "~*", "+@all", "-info") }},
		{"no PING", hotLock, func(t *testing.T) string { return user(t, "~*", "+@all", "-ping") }},
		{"no EVAL without a lock", "", func(t *testing.T) string { return user(t, "~*", "+@all", "-eval") }},
		{"CLIENT as Redis 6 refuses it", hotLock, refuse("setname", "NOPERM this user has no permissions to run the 'client' command or its subcommand")},
		{"Redis 6.2 without a lock", "", old("6.2.7", true, version("6.2.7"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := prepare(t, test.url(t), test.lock); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("SET with GET without a lock", func(t *testing.T) {
		err := prepare(t, old("6.0.16", false, version("6.0.16"))(t), "")
		if err == nil || !strings.Contains(err.Error(), "the lab needs Redis 6.2, this is 6.0.16") {
			t.Errorf("got %v", err)
		}
	})
}

// Without a name, the lab's own connections look like strangers.
func TestACountWithoutNamesIsNotAvailable(t *testing.T) {
	server := redistest.Start(t, "--user", "default", "on", "nopass", "~*", "+@all", "-client|setname")
	r := open(t, server.Addr())
	census := r.TakeCensus(t.Context())
	everyCommand(t, r)
	if got, standing := r.Count(t.Context(), census); standing != redisstore.NotAvailable {
		t.Errorf("got %+v, %s, want not available", got, standing)
	}
}

// A preflight leaves nothing behind, also where the release is refused or the run is given up.
func TestAPreflightLeavesNothingBehind(t *testing.T) {
	for _, rights := range [][]string{{"+@all"}, {"+@all", "-eval"}} {
		server := redistest.Start(t, append([]string{"--user", "default", "on", "nopass", "~*"}, rights...)...)
		err := prepare(t, server.URL(), hotLock)
		if refused := len(rights) > 1; refused != (err != nil) {
			t.Fatalf("%v: %v", rights, err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("%v: %d keys are left, %v", rights, n, err)
		}
		client.Close()
	}
}

// The fill of another process is not disturbed.
func TestAPreflightKeepsAwayFromALockThatIsHeld(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		if _, err := r.Lock(t.Context(), hotLock, "theirs", time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Set(t.Context(), hotKey, "19.99", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := r.Preflight(t.Context(), redisstore.Trial{Key: hotKey, Value: "0.00", Lock: hotLock}); err != redisstore.ErrLocked {
			t.Errorf("got %v", err)
		}
		if value, _, err := r.Get(t.Context(), hotKey); value != "19.99" || err != nil {
			t.Errorf("the key afterwards: %q, %v", value, err)
		}
		if holder, err := r.Locked(t.Context(), hotLock); holder == nil || holder.Token != "theirs" || err != nil {
			t.Errorf("the lock afterwards: %v, %v", holder, err)
		}
	})
}

func TestAPreflightWorksOnEachServer(t *testing.T) {
	onEach(t, func(t *testing.T, r *redisstore.Redis) {
		if err := r.Preflight(t.Context(), redisstore.Trial{Key: hotKey, Value: "19.99", Lock: hotLock}); err != nil {
			t.Error(err)
		}
		if _, found, err := r.Get(t.Context(), hotKey); found || err != nil {
			t.Errorf("the key afterwards: %v, %v", found, err)
		}
		if holder, err := r.Locked(t.Context(), hotLock); holder != nil || err != nil {
			t.Errorf("the lock afterwards: %v, %v", holder, err)
		}
	})
}
