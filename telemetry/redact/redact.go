// Package redact shows URLs without what is secret in them. It is the one way in which the program shows a URL that
// somebody gave.
package redact

import (
	"net/url"
	"regexp"
	"strings"
)

// hidden stands for what is not shown.
const hidden = "***"

var (
	// word is text without room for a secret: a name, a host, or a host with its port.
	word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]*(:\d{1,5})?$`)
	// address is the host of a URL, with or without its port.
	address = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9]+)?\])?(:\d{1,5})?$`)
	inText  = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"]*`)
	scheme  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	number  = regexp.MustCompile(`^/?\d*$`)
)

// URL returns the scheme, host and path of a URL, and *** for what else there is, which may be secret. Of text that is
// not plainly a URL, be it that a special character in a password was not escaped, only the scheme is left.
func URL(text string) string {
	if word.MatchString(text) {
		return text
	}
	u, ok := Parse(text)
	if !ok {
		return scheme.FindString(text) + hidden
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += hidden + "@"
	}
	shown += u.Host + u.EscapedPath()
	if u.RawQuery != "" || u.Fragment != "" {
		shown += "?" + hidden
	}
	return shown
}

// Text returns the text of an error, for example of an HTTP client, with each URL in it as [URL] shows it.
func Text(text string) string { return inText.ReplaceAllStringFunc(text, URL) }

// Parse parses a whole URL, scheme://..., in which everything stands where it seems to stand: an "@" only ends user and
// password, the host looks like one, and the path of a redis URL is a number.
func Parse(text string) (u *url.URL, ok bool) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !scheme.MatchString(text) || u.Opaque != "" || !address.MatchString(u.Host):
		return nil, false
	case strings.Contains(u.EscapedPath()+u.RawQuery+u.EscapedFragment(), "@"):
		return nil, false // a password with a "/", "?" or "#"
	}
	switch u.Scheme {
	case "unix":
		ok = u.Host == ""
	case "redis", "rediss":
		ok = number.MatchString(u.Path) && u.Fragment == ""
	default:
		ok = u.Host != ""
	}
	return u, ok
}
