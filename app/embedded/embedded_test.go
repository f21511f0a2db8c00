package embedded_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/embedded"
)

func TestItCanBeStoppedAndComesBackEmptyAtTheSameAddress(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	addr := server.Addr()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	if err := client.Set(t.Context(), "key", "value", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it accepts although it was stopped")
	}
	if err := client.Get(t.Context(), "key").Err(); err == nil {
		t.Error("it answers although it was stopped")
	}

	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.Addr() != addr || server.Starts() != 2 || len(server.Commands()) != 0 {
		t.Errorf("at %s, not %s; %d starts; counted: %v", server.Addr(), addr, server.Starts(), server.Commands())
	}
	if err := client.Get(t.Context(), "key").Err(); err != redis.Nil {
		t.Errorf("got %v, want an absent key", err)
	}
	if n := server.Commands()["get"]; n != 1 {
		t.Errorf("counted %d GETs, want 1", n)
	}
	// Its clock goes on.
	if err := client.Set(t.Context(), "key", "value", 30*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); client.Get(t.Context(), "key").Err() != redis.Nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the key does not expire")
		}
	}
}

// The clock is set before a SET, and the server is locked while a script runs.
func TestAScriptCanSet(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Second})
	defer client.Close()
	started := time.Now()
	err = client.Eval(t.Context(), `return redis.call("SET", KEYS[1], ARGV[1], "PX", "300")`, []string{"key"}, "value").Err()
	if err != nil {
		t.Fatal(err)
	}
	if n := server.Commands()["set"]; n != 1 {
		t.Errorf("counted %d SETs, want the script's", n)
	}
	for deadline := time.Now().Add(5 * time.Second); client.Get(t.Context(), "key").Err() != redis.Nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the key does not expire")
		}
	}
	if took := time.Since(started); took < 299*time.Millisecond {
		t.Errorf("expired after %v, want 300 ms", took)
	}
}
