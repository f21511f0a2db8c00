package redisstore

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/redis/go-redis/v9"

	"cachelab/telemetry/redact"
)

// DefaultURL is the Redis that "auto" looks for.
const DefaultURL = "redis://localhost:6379"

// Target says which Redis to use. Make one with [ParseTarget].
type Target struct {
	Auto     bool // DefaultURL if it answers, else the embedded server
	Embedded bool
	options  *redis.Options // of a URL; nil otherwise
	master   string         // the name of the master that a sentinel is asked for; "" for its only one
	url      string         // as it was given, with user and password; with that of a file, too
	access   Access
}

// ParseTarget reads "auto", "embedded", or a URL: redis://, rediss:// or unix://, with user, password and
// database as usual, of a server that stands alone, of any node of a cluster, or of a sentinel (with ?master_name=NAME if it
// watches several masters). Its errors do not repeat the text, which may hold a password.
func ParseTarget(text string) (Target, error) {
	switch text {
	case "auto":
		return AutoAt(DefaultURL)
	case "embedded":
		return Target{Embedded: true}, nil
	}
	u, ok := redact.Parse(text) // the client's own parser takes redis:host:port, and goes to localhost:6379
	plain, master := text, ""
	if ok {
		plain, master = cutMaster(text, *u)
	}
	options, err := redis.ParseURL(plain)
	if !ok || err != nil {
		return Target{}, errors.New("want auto, embedded, or a URL like redis://user:password@host:6379/0 (also rediss://, unix://; " +
			"/ ? # @ and % in a password as %2F %3F %23 %40 and %25)")
	}
	if options.TLSConfig != nil {
		options.TLSConfig.ServerName = "" // that of the host which is dialled: there may be others than the URL's
	}
	return Target{options: options, master: master, url: text}, nil
}

// cutMaster takes the name of a sentinel's master out of a URL.
func cutMaster(text string, u url.URL) (plain, master string) {
	query := u.Query()
	if !query.Has(masterName) {
		return text, ""
	}
	master = query.Get(masterName)
	query.Del(masterName)
	u.RawQuery = query.Encode()
	return u.String(), master
}

const masterName = "master_name"

// AutoAt is the target "auto" that looks at url instead of [DefaultURL].
func AutoAt(url string) (Target, error) {
	t, err := ParseTarget(url)
	t.Auto = true
	return t, err
}

// String returns the target without user and password.
func (t Target) String() string {
	switch {
	case t.Auto:
		return "auto"
	case t.Embedded:
		return "embedded"
	}
	return t.Location()
}

// Location returns where the server of a URL is, and that which auto looks for, without user and password.
func (t Target) Location() string {
	u := url.URL{Scheme: "redis", Host: t.options.Addr}
	switch {
	case t.options.Network == "unix":
		u = url.URL{Scheme: "unix", Path: t.options.Addr}
	case t.options.TLSConfig != nil:
		u.Scheme = "rediss"
	}
	if t.options.DB != 0 {
		if u.Scheme == "unix" {
			u.RawQuery = "db=" + strconv.Itoa(t.options.DB)
		} else {
			u.Path = "/" + strconv.Itoa(t.options.DB)
		}
	}
	return u.String()
}

// at returns the target of a server on this machine, for the embedded one.
func at(addr string) Target { return Target{options: &redis.Options{Addr: addr}} }
