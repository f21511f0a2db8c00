package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/events"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/page"
	"cachelab/app/web"
)

// lab is a plan whose run lasts until it is told to end, or is stopped.
type lab struct {
	begun chan *web.View
	end   chan struct{}
	cause chan error    // why a run was stopped
	slow  chan struct{} // if set, a run that was stopped is not over before it is closed
}

func newLab() *lab {
	return &lab{begun: make(chan *web.View, 1), end: make(chan struct{}), cause: make(chan error, 1)}
}

func (l *lab) plan(c web.Choice) (web.Plan, []web.Fault) {
	if c.Settings["workers"] == "0" {
		return web.Plan{}, []web.Fault{{Field: "workers", Text: "want more"}, {Field: "ttl", Text: "want a duration"}}
	}
	return web.Plan{Command: "cachelab " + c.Kind, Workers: 50, Rounds: 3, Runs: []web.Planned{{Mode: "broken"}, {Mode: "fixed"}},
		Run: func(ctx context.Context, watch func(string) *web.View) page.Page {
			l.begun <- watch("broken")
			select {
			case <-l.end:
				return page.Page{Runs: []page.Run{{Run: facts.Run{ID: "a", Mode: "broken", BackendCalls: 7}}}}
			case <-ctx.Done():
				l.cause <- context.Cause(ctx)
				if l.slow != nil {
					<-l.slow
				}
				return page.Page{Error: context.Cause(ctx).Error()}
			}
		}}, nil
}

// served is a server at an address of its own.
type served struct {
	t      *testing.T
	client *http.Client
	url    string
	stop   func() error // ends it, and returns what Serve returned
}

func serve(t *testing.T, l *lab) served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- web.New(web.Form{Version: "v1"}, l.plan).Serve(ctx, listener) }()
	s := served{t: t, client: &http.Client{}, url: "http://" + listener.Addr().String(), stop: func() error { cancel(); return <-done }}
	t.Cleanup(func() { cancel(); s.client.CloseIdleConnections() })
	return s
}

// ask sends a request, changed by the functions, and returns its status and body.
func (s served) ask(method, path, body string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, one := range change {
		one(request)
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// feed follows the feed. next returns the next message of that kind.
func (s served) feed() (next func(event string) string, leave func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/feed", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cancel(); response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		s.t.Fatalf("the feed is %s", kind)
	}
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	return func(event string) string {
		s.t.Helper()
		for found := false; ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				s.t.Fatalf("waiting for %s: %v", event, err)
			}
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				found = strings.TrimSpace(name) == event
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && found {
				return data
			}
		}
	}, cancel
}

// state is a state of the feed, as far as it is looked at here.
type state struct {
	Show     int
	Running  bool
	Stopping bool
	Choice   *web.Choice
	Command  string
	Error    string
	Runs     []struct {
		Mode  string
		Begun bool
		Facts facts.Run
	}
	Result *struct {
		Data struct{ Runs []struct{ Facts facts.Run } }
	}
}

func parse(t *testing.T, text string) (s state) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

const choice = `{"kind": "rounds", "strategies": ["broken", "fixed"], "settings": {"workers": "50"}}`

func TestNobodyElseMayAsk(t *testing.T) {
	l := newLab()
	s := serve(t, l)
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	port := s.url[strings.LastIndex(s.url, ":"):]
	for name, change := range map[string]func(*http.Request){
		"a foreign name that points here": host("rebound.example" + port),
		"a name that begins like ours":    host("localhost.example" + port),
		"another address":                 host("192.0.2.1" + port),
		"no host":                         host("["),
		"another site":                    header("Origin", "http://evil.example"),
		"another port of this machine":    header("Origin", "http://127.0.0.1:1"),
		"a page from disk":                header("Origin", "null"),
		"https of the same name":          header("Origin", strings.Replace(s.url, "http:", "https:", 1)),
	} {
		for _, request := range []struct{ method, path, body string }{
			{"GET", "/", ""}, {"GET", "/feed", ""}, {"GET", "/runs.json", ""}, {"POST", "/check", choice}, {"POST", "/start", choice}, {"POST", "/stop", "{}"},
		} {
			if status, text := s.ask(request.method, request.path, request.body, change); status != http.StatusForbidden {
				t.Errorf("%s: %s %s gets %d: %s", name, request.method, request.path, status, text)
			}
		}
	}
	// What an old browser sends that knows no Origin of a form, and what a browser says of another site.
	if status, _ := s.ask("POST", "/start", choice, header("Sec-Fetch-Site", "cross-site")); status != http.StatusForbidden {
		t.Errorf("what another site sends gets %d", status)
	}
	if status, _ := s.ask("POST", "/start", choice, header("Content-Type", "text/plain")); status != http.StatusUnsupportedMediaType {
		t.Errorf("a form's type gets %d", status)
	}
	for _, name := range []string{"localhost", "localhost" + port, "127.0.0.1" + port, "127.0.0.1:9000", "[::1]" + port} {
		if status, text := s.ask("GET", "/", "", host(name)); status != http.StatusOK {
			t.Errorf("%s gets %d: %s", name, status, text)
		}
	}
	if status, text := s.ask("POST", "/check", choice, header("Origin", s.url)); status != http.StatusOK {
		t.Errorf("the page itself gets %d: %s", status, text)
	}
	select {
	case <-l.begun:
		t.Error("a run was started")
	default:
	}
}

func TestWhatIsWrongWithARequestIsSaid(t *testing.T) {
	s := serve(t, newLab())
	for _, test := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/start", `{"kind": `, 400, "unexpected EOF"},
		{"/start", `{"kind": "rounds", "redis": "redis://elsewhere"}`, 400, `unknown field "redis"`},
		{"/start", `{"kind": "` + strings.Repeat("x", 20_000) + `"}`, 400, "too large"},
		{"/start", `{"kind": 7}`, 400, "cannot unmarshal"},
		{"/start", `{"settings": {"workers": "0"}}`, 422, `"field":"ttl"`},
		{"/check", `{"settings": {"workers": "0"}}`, 200, `"field":"workers","text":"want more"`},
		{"/stop", ``, 400, "EOF"},
		{"/nothing", `{}`, 405, ""},
	} {
		if status, text := s.ask("POST", test.path, test.body); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s %.60s: %d %s, want %d %s", test.path, test.body, status, text, test.status, test.says)
		}
	}
	if status, _ := s.ask("GET", "/runs.json", ""); status != http.StatusNotFound {
		t.Errorf("without a run its JSON is answered with %d", status)
	}
}

func TestAllVisitorsSeeTheSameRunAndOneLeavingChangesNothing(t *testing.T) {
	l := newLab()
	s := serve(t, l)
	first, leave := s.feed()
	if got := parse(t, first("state")); got.Show != 0 || got.Running || got.Choice != nil {
		t.Errorf("at first: %+v", got)
	}
	if status, text := s.ask("POST", "/start", choice); status != http.StatusAccepted || !strings.Contains(text, "cachelab rounds") {
		t.Fatalf("start: %d %s", status, text)
	}
	view := <-l.begun
	if status, text := s.ask("POST", "/start", choice); status != http.StatusConflict || !strings.Contains(text, web.ErrBusy.Error()) {
		t.Errorf("a second run: %d %s", status, text)
	}
	_, end := view.Observe(herd.NoObserver{}).Round(t.Context(), herd.Round{Number: 1, Workers: 50})
	view.Tell(events.Event{Kind: events.Call, Worker: herd.Worker{Round: 1, Number: 3}})
	for !strings.Contains(first("picture"), `"in_flight":1,`) {
	}
	leave()

	// Who comes late gets all that there is.
	second, _ := s.feed()
	if got := parse(t, second("state")); !got.Running || got.Choice.Settings["workers"] != "50" || got.Command != "cachelab rounds" || len(got.Runs) != 2 ||
		!got.Runs[0].Begun || got.Runs[1].Begun {
		t.Errorf("a late visitor is told %+v", got)
	}
	if got := second("picture"); !strings.Contains(got, `"in_flight":1,`) || !strings.Contains(got, `"kind":"backend call"`) {
		t.Errorf("a late visitor sees %s", got)
	}

	// After a round, its sums.
	summary := herd.RoundSummary{Round: herd.Round{Number: 1, Workers: 50}}
	summary.Requests, summary.BackendCalls, summary.Expiries = 50, 50, 1
	end(summary)
	if got := parse(t, second("state")); got.Runs[0].Facts.BackendCalls != 50 || got.Runs[0].Facts.CallsPerExpiry != 50 || got.Runs[0].Facts.Rounds != 1 {
		t.Errorf("after a round: %+v", got.Runs[0].Facts)
	}
	close(l.end)
	if got := parse(t, second("state")); got.Running || got.Result == nil || got.Result.Data.Runs[0].Facts.BackendCalls != 7 || got.Error != "" {
		t.Errorf("at the end: %+v", got)
	}
	var runs []facts.Run
	if status, text := s.ask("GET", "/runs.json", ""); status != http.StatusOK || json.Unmarshal([]byte(text), &runs) != nil || runs[0].BackendCalls != 7 {
		t.Errorf("the JSON: %d %s", status, text)
	}
}

func TestStopEndsTheRunAndTheNextCanStart(t *testing.T) {
	l := newLab()
	s := serve(t, l)
	next, _ := s.feed()
	for range 2 {
		s.ask("POST", "/start", choice)
		<-l.begun
		if status, _ := s.ask("POST", "/stop", "{}"); status != http.StatusAccepted {
			t.Fatalf("stop gets %d", status)
		}
		if cause := <-l.cause; cause.Error() != "stopped on the page" {
			t.Errorf("it ends since %v", cause)
		}
		got := parse(t, next("state"))
		for got.Running || got.Show == 0 {
			got = parse(t, next("state"))
		}
		if got.Error != "stopped on the page" {
			t.Errorf("the page says %q", got.Error)
		}
	}
}

func TestTheEndOfTheProgramEndsTheRunInOrderAndThenTheFeed(t *testing.T) {
	l := newLab()
	l.slow = make(chan struct{})
	s := serve(t, l)
	next, _ := s.feed()
	s.ask("POST", "/start", choice)
	<-l.begun
	for !parse(t, next("state")).Running {
	}
	ended := make(chan error)
	go func() { ended <- s.stop() }()
	if cause := <-l.cause; !errors.Is(cause, context.Canceled) {
		t.Errorf("the run ended since %v", cause)
	}
	if status, _ := s.ask("GET", "/", ""); status != http.StatusOK { // the run's locks are not released yet
		t.Errorf("while the run ends, the page gets %d", status)
	}
	close(l.slow)
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
	got := parse(t, next("state"))
	for got.Running {
		got = parse(t, next("state"))
	}
	if got.Error == "" {
		t.Errorf("the last that is told: %+v", got)
	}
}

// A visitor that reads nothing is left behind after a while, and holds up nobody until then.
func TestWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, pipes := newLab(), newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- web.New(web.Form{}, l.plan).Serve(ctx, pipes) }()
		conn := pipes.dial()
		fmt.Fprint(conn, "GET /feed HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return pipes.dial(), nil }}}
		response, err := client.Post("http://127.0.0.1/start", "application/json", strings.NewReader(choice))
		if err != nil || response.StatusCode != http.StatusAccepted {
			t.Fatalf("start: %v, %v", response, err)
		}
		response.Body.Close()
		view, began := <-l.begun, time.Now()
		for range 10_000 {
			view.Tell(events.Event{Kind: events.Wait})
		}
		if took := time.Since(began); took > 0 { // the bubble's time: it passes where somebody waits
			t.Errorf("the run waited for %v", took)
		}
		time.Sleep(10 * time.Second)
		if n, err := io.Copy(io.Discard, conn); err != nil || n > 0 {
			t.Errorf("the connection is still there: %d bytes, %v", n, err)
		}
		client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-l.cause
	})
}

// What has been sent is not sent again; but now and then something is, so that who has gone is noticed.
func TestAQuietRunSendsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, pipes := newLab(), newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- web.New(web.Form{}, l.plan).Serve(ctx, pipes) }()
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return pipes.dial(), nil }}}
		response, err := client.Post("http://127.0.0.1/start", "application/json", strings.NewReader(choice))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		(<-l.begun).Tell(events.Event{Kind: events.Wait})

		feed, err := client.Get("http://127.0.0.1/feed")
		if err != nil {
			t.Fatal(err)
		}
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(feed.Body)
			text <- string(all)
		}()
		time.Sleep(40 * time.Second)
		cancel()
		<-l.cause
		all := <-text
		// One state as it is and one of the end, one picture, and a sign of life each 15 s.
		for what, want := range map[string]int{"event: state": 2, "event: picture": 1, ": here": 2} {
			if n := strings.Count(all, what); n != want {
				t.Errorf("%q was sent %d times, want %d", what, n, want)
			}
		}
		client.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener without a network.
type pipes struct{ conns chan net.Conn }

func newPipes() *pipes { return &pipes{make(chan net.Conn)} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

func (p *pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p *pipes) Close() error {
	close(p.conns)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	s := serve(t, newLab())
	response, err := s.client.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self';") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", policy)
	}
	if strings.Contains(string(text), "//") {
		t.Errorf("the page names another place:\n%s", text)
	}
	for _, name := range []string{"/page.js", "/page.css", "/form.js", "/live.js", "/live.css"} {
		status, text := s.ask("GET", name, "")
		if status != http.StatusOK || len(text) < 500 || strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/", ""), "http") {
			t.Errorf("%s: %d, %d bytes, or it names another place", name, status, len(text))
		}
	}
}
