package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/price"
)

var _ cache.Loader = (*backend.Client)(nil)

// limit is how long a client of these tests waits for an answer.
const limit = 500 * time.Millisecond

// serve serves a backend, and returns its address.
func serve(t *testing.T, config backend.Config) (runs *backend.Runs, address string) {
	t.Helper()
	runs = backend.NewRuns(config, nil)
	s := httptest.NewServer(backend.NewHandler(runs, backend.HandlerConfig{Version: "v1", Spans: func(_ context.Context, run string) backend.SpanCounts {
		return backend.SpanCounts{Ended: len(run)}
	}}))
	t.Cleanup(s.Close)
	return runs, s.URL
}

func dial(t *testing.T, c backend.ClientConfig) *backend.Client {
	t.Helper()
	if c.Limit == 0 {
		c.Limit = 30 * time.Second // of a busy machine
	}
	c.Callers = 50
	client, err := backend.Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// A herd of two processes of a run, and another run beside it: each run is counted on its own, whoever asked.
func TestTheServiceCountsEachRunOnItsOwn(t *testing.T) {
	entered := make(chan struct{}, 100)
	gate := make(chan struct{})
	runs := backend.NewRuns(backend.Config{}, func(string) backend.Probe { return gated{entered, gate} })
	s := httptest.NewServer(backend.NewHandler(runs, backend.HandlerConfig{}))
	defer s.Close()
	var mu sync.Mutex
	told := map[int]backend.Call{} // by number
	keep := func(_ context.Context, c backend.Call) {
		mu.Lock()
		defer mu.Unlock()
		told[c.Number] = c
	}
	one := dial(t, backend.ClientConfig{URL: s.URL, Run: "a", TTL: time.Hour, OnCall: keep})
	two := dial(t, backend.ClientConfig{URL: s.URL, Run: "a", TTL: time.Hour, OnCall: keep})
	other := dial(t, backend.ClientConfig{URL: s.URL, Run: "b", TTL: time.Hour})
	var herd sync.WaitGroup
	call := func(c *backend.Client) {
		herd.Go(func() {
			value, err := c.Load(t.Context(), "key")
			if v, known := price.Parse(value); err != nil || !known || v.Price != "key costs 19.99 EUR" || c.Answered(value).IsZero() {
				t.Errorf("answered %q, %v, at %v", value, err, c.Answered(value))
			}
		})
		<-entered
	}
	call(one)
	call(two)
	call(one)
	call(other)
	close(gate)
	herd.Wait()
	go func() { <-entered }()
	if _, err := two.Load(t.Context(), "key"); err != nil {
		t.Error(err)
	}

	want := map[string]backend.Report{"a": {Run: "a", Calls: 4, Peak: 3, Redundant: 2, Repeated: 1}, "b": {Run: "b", Calls: 1, Peak: 1}}
	for run, client := range map[string]*backend.Client{"a": one, "b": other} {
		report, err := client.Report(t.Context())
		if err != nil {
			t.Error(err)
		}
		equal(t, "report of run "+run, report, want[run])
	}
	for n := range 4 {
		c := told[n+1]
		equal(t, fmt.Sprint("call ", n+1, " is redundant"), c.Redundant, n == 1 || n == 2)
		equal(t, fmt.Sprint("call ", n+1, " is repeated"), c.Repeated, n == 3)
		equal(t, fmt.Sprint("call ", n+1, ": in flight"), c.InFlight, min(n, 3)%3+1)
	}
	equal(t, "calls of the first", one.Stats(), backend.Stats{Calls: 2, Peak: 3, Redundant: one.Stats().Redundant})
	equal(t, "calls told", len(told), 4)
	equal(t, "redundant and repeated, as both were told", one.Stats().Redundant+two.Stats().Redundant, 2)
	equal(t, "repeated, as the second was told", two.Stats().Repeated, 1)
}

// gated are calls that tell when they came, and stay until the gate opens.
type gated struct {
	entered chan<- struct{}
	gate    <-chan struct{}
}

func (g gated) Arrive(ctx context.Context, _ backend.Call) (context.Context, func(backend.Call)) {
	g.entered <- struct{}{}
	<-g.gate
	return ctx, func(backend.Call) {}
}
func (gated) Queue(context.Context) func(error)   { return func(error) {} }
func (gated) Compute(context.Context) func(error) { return func(error) {} }

func TestRunsShareTheCapacity(t *testing.T) {
	runs := backend.NewRuns(backend.Config{Latency: time.Hour, Capacity: 1}, nil)
	ctx, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer leave()
	var services []*backend.Service
	for _, run := range []string{"a", "b"} {
		s, err := runs.Open(run, 0)
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, s)
		calls.Go(func() { s.Serve(ctx, "key") })
	}
	queued := func() int { return services[0].Stats().Queued + services[1].Stats().Queued }
	for began := time.Now(); queued() != 1; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("none of the two queues for the other's place")
		}
	}
}

func TestOfManyRunsTheOneThatIsNotUsedIsForgotten(t *testing.T) {
	runs := backend.NewRuns(backend.Config{}, nil)
	for i := range 101 {
		for _, run := range []string{fmt.Sprint("run-", i), "run-0"} { // which is used
			s, err := runs.Open(run, 0)
			if err != nil {
				t.Fatal(err)
			}
			s.Serve(t.Context(), "key")
		}
	}
	for _, test := range []struct {
		run   string
		calls int
	}{{"run-0", 102}, {"run-100", 1}, {"run-2", 1}, {"run-1", 0}} { // the last begins anew
		s, err := runs.Open(test.run, 0)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "calls of "+test.run, s.Stats().Calls, test.calls)
	}
}

// The answers as anybody sees them.
func TestTheServiceOverHTTP(t *testing.T) {
	fails, err := backend.ParseFailures("2")
	if err != nil {
		t.Fatal(err)
	}
	_, address := serve(t, backend.Config{Failures: fails, Seed: 7, Latency: time.Millisecond, Capacity: 3})
	for _, test := range []struct {
		path   string
		status int
		want   string // a part of it
	}{
		{"/healthz", 200, "ok\n"},
		{"/", 200, `"latency_ns":1000000,"jitter":0,"capacity":3,"failures":"2","seed":7}`},
		{"/runs/a", 404, `no call of run \"a\"`},
		{"/price", 400, "want /price?key=KEY"},
		{"/price?key=k&ttl=soon", 400, "want /price?key=KEY"},
		{"/price?key=k&ttl=-1s", 400, "want /price?key=KEY"},
		{"/price?key=" + strings.Repeat("k", 5000), 400, "a key has 1 to 4096 bytes"},
		{"/price?key=k&run=a", 200, `{"price":"k costs 19.99 EUR","backend":"`},
		{"/price?key=k&run=a", 500, `{"error":"price service unavailable","call":2,"in_flight":1,"queued_ns":0,"redundant":false,"repeated":false}`},
		{"/runs/a", 200, `{"run":"a","calls":2,"in_flight":0,"queued":0,"peak":1,"redundant":0,"repeated":0,"spans":{"ended":1,"exported":0,"dropped":0}}`},
		{"/price?key=k", 200, `"generation":1,`},
		{"/runs/none", 200, `"calls":1,`},
		{"/elsewhere", 404, "404 page not found"},
	} {
		response, err := http.Get(address + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.want) {
			t.Errorf("GET %.40s: %d %s, %v, want %d and %s", test.path, response.StatusCode, body, err, test.status, test.want)
		}
	}
	client := dial(t, backend.ClientConfig{URL: address + "/", Run: "c"})
	about := client.About()
	about.Machine = ""
	equal(t, "about", about, backend.About{Service: "price-service", Version: "v1", Latency: time.Millisecond, Capacity: 3, Failures: "2", Seed: 7})
}

// Whatever the other end does, a call comes back within its limit, with the service's name, and with what is known of it.
func TestAHostileServiceIsAnErrorWithItsName(t *testing.T) {
	const good = `{"price":"key costs 1","backend":"b","generation":1,"call":1,"in_flight":1}`
	answers := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, test := range map[string]struct {
		price http.HandlerFunc
		want  string
		fate  error // nil: it came back
	}{
		"fails":             {answers(500, `{"error":"price service unavailable","call":1}`), "answered 500: price service unavailable", nil},
		"fails plainly":     {answers(502, "<html>bad gateway"), "answered 502", nil},
		"is elsewhere":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, "answered 302", nil},
		"is another's":      {answers(200, "<html>hello"), `answered 200, but with no JSON: "<html>hello"`, nil},
		"says nothing":      {answers(200, ""), `answered 200, but with no JSON: ""`, nil},
		"has no price":      {answers(200, "{}"), "answered 200, but with no price", nil},
		"is of other types": {answers(200, strings.Replace(good, `"call":1`, `"call":"one"`, 1)), "answered 200, but with no JSON", nil},
		"talks too much":    {answers(200, good+strings.Repeat(" ", 70_000)), "answered 200, with more than 64 KiB", nil},
		"never ends": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat(" ", 1000))
			}
		}, "answered 200, with more than 64 KiB", nil},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in 500ms", backend.ErrNoAnswer},
		"hangs in its answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "answered 200, and then nothing more: no answer in 500ms", nil},
		"closes": {func(w http.ResponseWriter, _ *http.Request) { hangUp(w, false) }, "EOF", backend.ErrNoAnswer},
		"resets": {func(w http.ResponseWriter, _ *http.Request) { hangUp(w, true) }, "connection reset by peer", backend.ErrNoAnswer},
		"talks something else": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			fmt.Fprint(c, "-ERR unknown command\r\n")
			c.Close()
		}, "malformed HTTP", backend.ErrNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			came := make(chan struct{}, 10)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/price" {
					came <- struct{}{}
					test.price(w, r)
					return
				}
				_ = json.NewEncoder(w).Encode(backend.About{Service: backend.ServiceName})
			}))
			defer s.Close()
			calls := 0
			client := dial(t, backend.ClientConfig{URL: s.URL, Run: "a", Limit: limit, OnCall: func(context.Context, backend.Call) { calls++ }})
			bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			value, err := client.Load(bounded, "key") // on the connection that was used before: it is not sent again, unseen
			want := "price service at " + s.URL + ": " + test.want
			if value != "" || err == nil || !strings.HasPrefix(err.Error(), "price service at "+s.URL+": ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, %v, want %q", value, err, want)
			}
			for _, fate := range []error{backend.ErrNoAnswer, backend.ErrNotArrived} {
				equal(t, fate.Error(), errors.Is(err, fate), fate == test.fate)
			}
			equal(t, "bounded by its own limit", bounded.Err(), nil)
			equal(t, "times that it came", len(came), 1)
			equal(t, "calls that were told of", calls, strings.Count(test.want, "unavailable"))
			equal(t, "stats", client.Stats(), backend.Stats{Calls: 1, Peak: 1})
		})
	}
}

// hangUp closes the connection; with a reset, or in order.
func hangUp(w http.ResponseWriter, reset bool) {
	c, _, _ := http.NewResponseController(w).Hijack()
	if tcp, ok := c.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func TestACallThatCannotArriveSaysSo(t *testing.T) {
	_, address := serve(t, backend.Config{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(backend.About{Service: backend.ServiceName})
	}))
	client := dial(t, backend.ClientConfig{URL: s.URL, Run: "a", Limit: limit})
	s.Close() // it has died
	client.Close()
	_, err := client.Load(t.Context(), "key")
	if want := "price service at " + s.URL + ": connection refused: the call did not arrive"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	equal(t, "not arrived", errors.Is(err, backend.ErrNotArrived), true)

	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("I left"))
	client = dial(t, backend.ClientConfig{URL: address, Run: "a", Limit: limit})
	if _, err := client.Load(gone, "key"); err == nil || !strings.Contains(err.Error(), ": I left: the call did not arrive") {
		t.Errorf("got %v", err)
	}
	report, err := client.Report(t.Context())
	if err != nil {
		t.Error(err)
	}
	equal(t, "report of a run without a call", report, backend.Report{Run: "a"})
	equal(t, "calls", client.Made(), backend.Made{Calls: 1, NotArrived: 1})
}

func TestWhatDoesNotAddUpIsSaid(t *testing.T) {
	for _, test := range []struct {
		made    backend.Made
		counted int
		want    string
	}{
		{backend.Made{Calls: 50}, 50, ""},
		{backend.Made{Calls: 50, NoAnswer: 2}, 50, ""},
		{backend.Made{Calls: 50, NotArrived: 1}, 49, "the lab made 50 calls, the service counted 49: 1 did not arrive"},
		{backend.Made{Calls: 50, NotArrived: 1, NoAnswer: 2}, 47, "the lab made 50 calls, the service counted 47: 1 did not arrive, 2 had no answer"},
		{backend.Made{Calls: 50, NoAnswer: 2}, 47, "the lab made 50 calls, the service counted 47: 2 had no answer, was the service restarted, or does another process call for this run?"},
		{backend.Made{Calls: 50}, 51, "the lab made 50 calls, the service counted 51: was the service restarted, or does another process call for this run?"},
	} {
		equal(t, fmt.Sprint(test.made), backend.Account(test.made, test.counted), test.want)
	}
	sum := backend.Made{Calls: 5, NoAnswer: 1}
	sum.Add(backend.Made{Calls: 3, NotArrived: 2, NoAnswer: 1})
	equal(t, "of two processes", sum, backend.Made{Calls: 8, NotArrived: 2, NoAnswer: 2})
}

func TestDialNamesWhatIsWrong(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer other.Close()
	for address, want := range map[string]string{
		"http://" + refused.Addr().String(): "connection refused: the call did not arrive; start one with: cachelab backend",
		other.URL:                           "it is no price-service",
		"127.0.0.1:8042":                    "want a URL like http://127.0.0.1:8042",
		"http://u:p@127.0.0.1:8042":         "want a URL like",
		"http://127.0.0.1:8042/price":       "want a URL like",
		"ftp://127.0.0.1":                   "want a URL like",
	} {
		_, err := backend.Dial(t.Context(), backend.ClientConfig{URL: address, Limit: limit})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

// A server that ends answers who has come, and cuts off those for whom that takes too long.
func TestTheServerEndsInOrder(t *testing.T) {
	entered, gate := make(chan struct{}), make(chan struct{})
	s, err := backend.Listen("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-gate
		fmt.Fprint(w, "answered")
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Listen(strings.TrimPrefix(s.URL, "http://"), nil); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a taken port: %v", err)
	}
	answered := make(chan string, 1)
	go func() {
		response, err := http.Get(s.URL)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- s.Close(t.Context()) }()
	close(gate)
	equal(t, "answer", <-answered, "answered")
	equal(t, "end", <-ended, nil)

	hangs, err := backend.Listen("127.0.0.1:0", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, err := http.Get(hangs.URL); answered <- fmt.Sprint(err) }()
	<-entered
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := hangs.Close(soon); err == nil || !strings.Contains(err.Error(), "calls were cut off") {
		t.Errorf("a call that hangs: %v", err)
	}
	if text := <-answered; !strings.Contains(text, "EOF") {
		t.Errorf("who was cut off got %s", text)
	}
}
