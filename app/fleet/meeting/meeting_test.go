package meeting_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/fleet"
	"cachelab/app/fleet/meeting"
	"cachelab/app/internal/redistest"
	"cachelab/app/redisstore"
)

func TestMain(m *testing.M) {
	redisstore.DiscardClientLog()
	os.Exit(m.Run())
}

// newRun returns a run's streams at addr, by connections of their own, as each process has.
func newRun(t *testing.T, addr, id string) meeting.Run {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 140, DialTimeout: time.Second, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	return meeting.Run{ID: id, Redis: client, Masters: func(context.Context) ([]*redis.Client, error) { return []*redis.Client{client}, nil }}
}

// pair opens a run for joiners, and returns both ends of the line of one.
func pair(t *testing.T, coordinator, joiner meeting.Run, joiners int) (here, there *meeting.Line) {
	t.Helper()
	door, err := coordinator.Open(t.Context(), joiners)
	if err != nil {
		t.Fatal(err)
	}
	here, there = accept(t, door, joiner)
	if err := door.Close(); err != nil {
		t.Fatal(err)
	}
	return here, there
}

func accept(t *testing.T, door *meeting.Door, joiner meeting.Run) (here, there *meeting.Line) {
	t.Helper()
	there, err := joiner.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if here, err = door.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return here, there
}

func message(t *testing.T, kind string, body any) fleet.Message {
	t.Helper()
	m, err := fleet.NewMessage(kind, body)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func send(t *testing.T, line fleet.Line, m fleet.Message) {
	t.Helper()
	if err := line.Send(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, line fleet.Line) fleet.Message {
	t.Helper()
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := line.Receive(limited)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// keys are the lab's keys in the Redis.
func keys(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	all, _, err := client.Scan(t.Context(), 0, "cachelab:*", 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMessagesComeWholeAndInTheirOrderBothWays(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-1")
	here, there := pair(t, run, newRun(t, server.Addr(), "rounds-1"), 2)
	const messages = 2000
	var both sync.WaitGroup
	for _, way := range []struct{ from, to fleet.Line }{{here, there}, {there, here}} {
		both.Go(func() {
			for n := range messages {
				send(t, way.from, message(t, "n", n))
			}
		})
		both.Go(func() {
			for want := range messages {
				m, err := way.to.Receive(t.Context())
				var n int
				if err != nil || m.Kind != "n" || m.Read(&n) != nil || n != want {
					t.Errorf("received %q %s, %v instead of %d", m.Kind, m.Body, err, want)
					return
				}
			}
		})
	}
	both.Wait()
}

func TestALineThatIsClosedBringsWhatWasSentAndEnds(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-1")
	here, there := pair(t, run, newRun(t, server.Addr(), "rounds-1"), 1)
	send(t, there, message(t, "bye", nil))
	closed := make(chan error, 1)
	go func() { closed <- there.Close() }()
	if m := receive(t, here); m.Kind != "bye" {
		t.Errorf("received %q", m.Kind)
	}
	for range 2 {
		if _, err := here.Receive(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
	if err := errors.Join(<-closed, here.Close(), here.Close()); err != nil {
		t.Error(err)
	}
	if left := keys(t, run.Redis); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if err := here.Send(t.Context(), message(t, "late", nil)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sent on a closed line: %v", err)
	}
	if _, err := there.Receive(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("received from a closed line: %v", err)
	}
}

// A message is given up in its middle, when ctx ends; the next one comes whole.
func TestLargeMessagesComeWholeAndTooLargeOnesAreRefused(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-1")
	here, there := pair(t, run, newRun(t, server.Addr(), "rounds-1"), 1)
	if err := here.Send(t.Context(), message(t, "huge", strings.Repeat("x", 17<<20))); err == nil || !strings.Contains(err.Error(), "more than a line takes") {
		t.Errorf("17 MB: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	large := strings.Repeat("0123456789", 500_000)
	if err := here.Send(short, message(t, "given up", large)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody reads: %v", err)
	}
	go send(t, here, message(t, "large", large))
	m := receive(t, there)
	var text string
	if err := m.Read(&text); err != nil || m.Kind != "large" || text != large {
		t.Errorf("received %q of %d bytes, %v", m.Kind, len(text), err)
	}
}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

func memory(t *testing.T, client redis.UniversalClient) int {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(usedMemory.FindStringSubmatch(info)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// However many joiners have however much to say, and nobody reads, Redis holds no more than 4 MB of it.
func TestAllLinesTogetherStayBelowFourMegabytes(t *testing.T) {
	for _, test := range []struct{ joiners, size int }{{1, 3 << 20}, {4, 100}, {50, 100_000}, {50, 100}} {
		t.Run(fmt.Sprintf("%d joiners, messages of %d bytes", test.joiners, test.size), func(t *testing.T) {
			server := redistest.Start(t)
			coordinator, joiner := newRun(t, server.Addr(), "rounds-1"), newRun(t, server.Addr(), "rounds-1")
			door, err := coordinator.Open(t.Context(), test.joiners)
			if err != nil {
				t.Fatal(err)
			}
			var lines []*meeting.Line
			for range test.joiners {
				here, there := accept(t, door, joiner)
				lines = append(lines, here, there)
			}
			before := memory(t, coordinator.Redis)
			full, stop := context.WithTimeout(t.Context(), 2*time.Second)
			defer stop()
			m := message(t, "much", strings.Repeat("x", test.size))
			var all sync.WaitGroup
			for _, line := range lines {
				all.Go(func() {
					for full.Err() == nil {
						if err := line.Send(full, m); err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			grown, streams := memory(t, coordinator.Redis)-before, 0
			for _, key := range keys(t, coordinator.Redis) {
				n, err := coordinator.Redis.MemoryUsage(t.Context(), key, 0).Result()
				if err != nil {
					t.Fatal(err)
				}
				streams += int(n)
			}
			t.Logf("MEMORY USAGE of the streams %d bytes, used_memory grew by %d", streams, grown)
			if streams > 4_000_000 || streams < 400_000 { // used_memory has the connections' buffers, too
				t.Errorf("the streams take %d bytes", streams)
			}
		})
	}
}

func TestSendWaitsWhileTheOtherEndDoesNotReadButNotForEver(t *testing.T) {
	server := redistest.Start(t)
	here, there := pair(t, newRun(t, server.Addr(), "rounds-1"), newRun(t, server.Addr(), "rounds-1"), 1)
	m, began := message(t, "much", strings.Repeat("x", 3<<20)), time.Now()
	err := here.Send(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "the other end has read nothing for 10s") {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	sent := make(chan error, 1)
	go func() { sent <- here.Send(t.Context(), m) }()
	if got := receive(t, there); len(got.Body) != len(m.Body) {
		t.Errorf("received %d bytes of %d", len(got.Body), len(m.Body))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestAStreamThatNobodyUsesGoesByItself(t *testing.T) {
	server := redistest.Start(t)
	coordinator, joiner := newRun(t, server.Addr(), "rounds-1"), newRun(t, server.Addr(), "rounds-1")
	coordinator.Lifetime, joiner.Lifetime = 2*time.Second, 2*time.Second
	door, err := coordinator.Open(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	here, there := accept(t, door, joiner)
	// The door is renewed while somebody waits in it, and a line by what is sent.
	waiting, leave := context.WithTimeout(t.Context(), 3*coordinator.Lifetime)
	defer leave()
	go func() {
		for waiting.Err() == nil {
			send(t, here, message(t, "alive", nil))
			send(t, there, message(t, "alive", nil))
			time.Sleep(100 * time.Millisecond)
		}
	}()
	if _, err := door.Accept(waiting); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if there := keys(t, coordinator.Redis); len(there) != 3 {
		t.Errorf("in use are %q", there)
	}
	// Now nobody closes anything: all were killed.
	for gone := time.Now().Add(2*coordinator.Lifetime + 5*time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := keys(t, coordinator.Redis)
		if len(left) == 0 {
			break
		}
		if time.Now().After(gone) {
			t.Fatalf("left are %q", left)
		}
	}
}

func TestWhoKnocksAtTheWrongDoorIsToldWhichAreOpen(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-9")
	if _, err := run.Join(t.Context()); !errors.Is(err, meeting.ErrNotOpen) {
		t.Errorf("no run is open: %v", err)
	}
	for _, id := range []string{"rounds-2", "rounds-1"} {
		other := run
		other.ID = id
		door, err := other.Open(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer door.Close()
	}
	if _, err := run.Join(t.Context()); !errors.Is(err, meeting.ErrNotOpen) {
		t.Errorf("two others are open: %v", err)
	}
	if open, err := run.Doors(t.Context()); err != nil || !slices.Equal(open, []string{"rounds-1", "rounds-2"}) {
		t.Errorf("open are %q, %v", open, err)
	}
	if left := keys(t, run.Redis); len(left) != 2 {
		t.Errorf("the knock left something: %q", left)
	}
}

func TestARunIsOpenOnce(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-1")
	door, err := run.Open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Open(t.Context(), 1); !errors.Is(err, meeting.ErrTaken) {
		t.Errorf("opened twice: %v", err)
	}
	here, there := accept(t, door, run)
	send(t, there, message(t, "hello", nil))
	if m := receive(t, here); m.Kind != "hello" {
		t.Errorf("the first door took in %q", m.Kind)
	}
	if err := door.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := run.Open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// Redis's own counts of what workers send stay exact.
func TestTheMeetingSendsNothingThatWorkersSend(t *testing.T) {
	server := redistest.Start(t)
	run := newRun(t, server.Addr(), "rounds-1")
	here, there := pair(t, run, newRun(t, server.Addr(), "rounds-1"), 1)
	go send(t, there, message(t, "large", strings.Repeat("x", 4<<20)))
	receive(t, here)
	go here.Close()
	if _, err := there.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Join(t.Context()); !errors.Is(err, meeting.ErrNotOpen) {
		t.Fatal(err)
	}
	if _, err := run.Doors(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := run.Redis.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`cmdstat_([\w|]+):calls`).FindAllStringSubmatch(info, -1) {
		if !slices.Contains([]string{"xadd", "xread", "xtrim", "xlen", "expire", "unlink", "scan", "hello", "info", "client|setinfo", "client|maint_notifications", "ping"}, m[1]) {
			t.Errorf("the meeting sent %s", m[1])
		}
	}
}

// The store's own connections will do, and in a cluster all streams of a run are on one node.
func TestProcessesMeetOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	enter := func(node int, id string) (meeting.Run, *redisstore.Redis) {
		t.Helper()
		target, err := redisstore.ParseTarget("redis://" + cluster.Nodes[node].Addr())
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.Open(t.Context(), redisstore.Options{Target: target, Workers: meeting.Connections + 1, Name: "cachelab-" + id})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return meeting.Run{ID: id, Redis: store.Client(), Masters: store.Masters}, store
	}
	for n := range 3 { // ids whose streams are on several nodes
		id := fmt.Sprintf("rounds-%d", n)
		coordinator, store := enter(n, id)
		joiner, _ := enter((n+1)%3, id)
		door, err := coordinator.Open(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		stranger, _ := enter(n, "other")
		if open, err := stranger.Doors(t.Context()); err != nil || !slices.Equal(open, []string{id}) {
			t.Errorf("open are %q, %v", open, err)
		}
		here, there := accept(t, door, joiner)
		go send(t, there, message(t, "large", strings.Repeat("x", 4<<20)))
		if m := receive(t, here); m.Kind != "large" {
			t.Errorf("received %q", m.Kind)
		}
		go here.Close()
		if _, err := there.Receive(t.Context()); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if err := errors.Join(there.Close(), door.Close()); err != nil {
			t.Error(err)
		}
		masters, err := store.Masters(t.Context())
		if err != nil || len(masters) != 3 {
			t.Fatalf("%d masters, %v", len(masters), err)
		}
		for _, master := range masters {
			if left := keys(t, master); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		}
	}
}
