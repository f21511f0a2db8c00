package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cachelab/app/price"
)

// What is known of a call that was not answered.
var (
	ErrNotArrived = errors.New("the call did not arrive")
	ErrNoAnswer   = errors.New("whether the call arrived is not known")
)

// ClientConfig says which service to ask, and for whom.
type ClientConfig struct {
	URL string // of the service, like http://127.0.0.1:8042
	Run string // whose calls these are
	TTL time.Duration
	// Limit is how long an answer may take, the queue of all callers included.
	Limit time.Duration
	// Callers is how many may ask at once: as many connections are kept.
	Callers int
	// Transport, if set, returns a transport around the client's own: it carries the trace's context.
	Transport func(http.RoundTripper) http.RoundTripper
	// OnCall, if set, is told of each call that the service answered, with the caller's context. An answer that is no answer
	// tells nothing.
	OnCall func(context.Context, Call)
}

// Client is the backend as another process serves it: see [NewHandler]. Use [Dial], and Close it.
type Client struct {
	config ClientConfig
	url    *url.URL
	http   *http.Client
	about  About
	local  bool // the service reads the clock that is read here

	mu     sync.Mutex // guards all below
	stats  Stats      // of this client's calls; in flight and peak as the service tells
	recent recentPeak
	made   Made
	// When answers were given, of the newest ones. The map before holds those of the time before.
	answered, before map[price.Generation]time.Time
}

// Bounds of what is asked and answered.
const (
	dialTimeout = time.Second
	askTimeout  = 3 * time.Second // for an answer that takes no work
	maxBody     = 64 << 10
	manyAnswers = 1 << 16
)

// ParseURL reads the address of a service.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("want a URL like http://127.0.0.1:8042")
	}
	u.Path = ""
	return u, nil
}

// Dial asks the service what it is like. The error names it, and says what to do.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	u, err := ParseURL(config.URL)
	if err != nil {
		return nil, fmt.Errorf("price service %q: %w", config.URL, err)
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	own.TLSHandshakeTimeout = dialTimeout
	own.MaxIdleConns, own.MaxIdleConnsPerHost = config.Callers, config.Callers
	own.MaxResponseHeaderBytes = maxBody
	own.ForceAttemptHTTP2 = false
	transport := http.RoundTripper(own)
	if config.Transport != nil {
		transport = config.Transport(own)
	}
	c := &Client{config: config, url: u, recent: newRecentPeak(), answered: map[price.Generation]time.Time{}, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if err := c.ask(ctx, "/", &c.about); err != nil {
		return nil, fmt.Errorf("%w; start one with: cachelab backend", err)
	}
	if c.about.Service != ServiceName {
		return nil, c.named(fmt.Errorf("it is no %s", ServiceName))
	}
	c.local = c.about.Machine != "" && c.about.Machine == thisMachine()
	return c, nil
}

// Close closes its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// About returns what the service is like.
func (c *Client) About() About { return c.about }

// Report asks what the service counted of the run. Its spans are flushed by then.
func (c *Client) Report(ctx context.Context) (r Report, err error) {
	err = c.ask(ctx, pathRuns+url.PathEscape(c.config.Run), &r)
	if errors.Is(err, errUnknownRun) {
		return Report{Run: c.config.Run}, nil // no call has come
	}
	return r, err
}

var errUnknownRun = errors.New("answered 404")

// Load is one call: see [Service.Load]. It implements cache.Loader. What the service does not answer in time, or well, is an
// error with the service's name, and is [ErrNotArrived] or [ErrNoAnswer] where nothing came back.
func (c *Client) Load(ctx context.Context, key string) (string, error) {
	c.enter()
	a, err := c.call(ctx, key)
	c.leave(a, err)
	if a.Call > 0 && c.config.OnCall != nil {
		call := a.call()
		call.Err = err
		c.config.OnCall(ctx, call)
	}
	if err != nil {
		return "", err
	}
	return a.value().String(), nil
}

func (c *Client) call(ctx context.Context, key string) (a answer, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, c.config.Limit, fmt.Errorf("no answer in %v", c.config.Limit))
	defer cancel()
	query := url.Values{paramKey: {key}, paramRun: {c.config.Run}, paramTTL: {c.config.TTL.String()}}
	status, err := c.get(limited, pathPrice+"?"+query.Encode(), &a)
	switch {
	case err != nil:
		return answer{}, c.named(err)
	case status != http.StatusOK && a.Error != "":
		return a, c.named(fmt.Errorf("answered %d: %.200s", status, a.Error))
	case status != http.StatusOK:
		return answer{}, c.named(fmt.Errorf("answered %d", status))
	case a.Price == "" || a.Backend == "" || a.Generation < 1 || a.Call < 1 || a.InFlight < 1:
		return answer{}, c.named(errors.New("answered 200, but with no price"))
	}
	return a, nil
}

// ask asks for what takes no work.
func (c *Client) ask(ctx context.Context, path string, into any) error {
	limited, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer in %v", askTimeout))
	defer cancel()
	status, err := c.get(limited, path, into)
	switch {
	case err == nil && status == http.StatusNotFound:
		err = fmt.Errorf("GET %s: %w", path, errUnknownRun)
	case err == nil && status != http.StatusOK:
		err = fmt.Errorf("GET %s: answered %d", path, status)
	}
	if err != nil {
		return c.named(err)
	}
	return nil
}

// get reads a JSON answer, whatever its status. An error is ErrNotArrived or ErrNoAnswer, unless something came back.
func (c *Client) get(ctx context.Context, path string, into any) (status int, err error) {
	var written atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }})
	request, err := http.NewRequestWithContext(traced, http.MethodGet, c.url.String()+path, nil)
	if err != nil {
		return 0, err
	}
	// A GET whose connection breaks would be sent again, unseen, and be counted twice. One with a body is not, not even with an
	// empty one.
	request.Body = io.NopCloser(strings.NewReader(""))
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil && !written.Load() {
		return 0, fmt.Errorf("%w: %w", reason(ctx, err), ErrNotArrived)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", reason(ctx, err), ErrNoAnswer)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("answered %d, and then nothing more: %w", response.StatusCode, reason(ctx, err))
	case len(body) > maxBody:
		return 0, fmt.Errorf("answered %d, with more than %d KiB", response.StatusCode, maxBody>>10)
	}
	if err := json.Unmarshal(body, into); err != nil && response.StatusCode == http.StatusOK {
		return 0, fmt.Errorf("answered 200, but with no JSON: %.40q", bytes.TrimSpace(body))
	}
	return response.StatusCode, nil
}

// reason is why nothing came, in few words.
func reason(ctx context.Context, err error) error {
	failed, refused := (*url.Error)(nil), syscall.Errno(0)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &refused):
		return refused // without the addresses: the service is named
	case errors.As(err, &failed):
		return failed.Err
	}
	return err
}

// named is an error with the service's name.
func (c *Client) named(err error) error { return fmt.Errorf("price service at %s: %w", c.url, err) }

func (c *Client) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Calls++
	c.made.Calls++
	c.stats.InFlight++
	c.note(c.stats.InFlight)
}

func (c *Client) leave(a answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(max(c.stats.InFlight, a.InFlight))
	c.stats.InFlight--
	switch {
	case errors.Is(err, ErrNotArrived):
		c.made.NotArrived++
	case errors.Is(err, ErrNoAnswer):
		c.made.NoAnswer++
	}
	if a.Redundant {
		c.stats.Redundant++
	}
	if a.Repeated {
		c.stats.Repeated++
	}
	if a.Answered.IsZero() || !c.local { // another machine's clock says nothing here
		return
	}
	if len(c.answered) >= manyAnswers {
		c.answered, c.before = map[price.Generation]time.Time{}, c.answered
	}
	c.answered[a.value().Generation] = a.Answered
}

// note notes how many are in flight.
func (c *Client) note(n int) {
	c.stats.Peak = max(c.stats.Peak, n)
	c.recent.note(n)
}

// Answered returns when the service gave the answer that value is; the zero time if that is not known: it was given to
// another process, or by the clock of another machine.
func (c *Client) Answered(value string) time.Time {
	v, known := price.Parse(value)
	if !known {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, known := c.answered[v.Generation]; known {
		return at
	}
	return c.before[v.Generation]
}

// Stats returns what is known of this client's calls. Whether they queue is the service's affair: those count that are more
// than it answers at once.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	if c.about.Capacity > 0 {
		s.Queued = max(0, s.InFlight-c.about.Capacity)
	}
	return s
}

// RecentPeak returns the most callers in flight in the last 2 s, as far as they are known. Asking changes nothing.
func (c *Client) RecentPeak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.peak(c.stats.InFlight)
}
