package redact_test

import (
	"regexp"
	"strings"
	"testing"

	"cachelab/telemetry/redact"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"auto":                    "auto",
		"embeded":                 "embeded",
		"localhost":               "localhost",
		"localhost:6379":          "localhost:6379",
		"redis://localhost:6379":  "redis://localhost:6379",
		"redis://[::1]:6379/3":    "redis://[::1]:6379/3",
		"unix:///tmp/redis.sock":  "unix:///tmp/redis.sock",
		"http://h:4318/v1/traces": "http://h:4318/v1/traces",

		"redis://user:PW@h:1/2":            "redis://***@h:1/2",
		"redis://PW@h":                     "redis://***@h",
		"redis://user:P@W@h":               "redis://***@h",
		"unix://user:PW@/tmp/redis.sock":   "unix://***@/tmp/redis.sock",
		"http://user:PW@h:9090/api":        "http://***@h:9090/api",
		"redis://localhost:1?password=PW":  "redis://localhost:1?***",
		"rediss://user:PW@h?password=PW":   "rediss://***@h?***",
		"http://user:PW@h/v1?api-key=PW":   "http://***@h/v1?***",
		"https://h/v1#PW":                  "https://h/v1?***",
		"redis://user:PW":                  "redis://***",
		"redis://user:PW,localhost:7110":   "redis://***",
		"redis://user:P/W@h":               "redis://***",
		"redis://user:12/PW@h":             "redis://***",
		"redis://user:12?PW@h":             "redis://***",
		"redis://user:12#PW@h":             "redis://***",
		"redis://u:PW@h:1/PW":              "redis://***",
		"unix://user:PW/tmp/x":             "unix://***",
		"unix:///u:PW@/tmp/x":              "unix://***",
		"http://user:12/PW@h":              "http://***",
		"redis:user:PW@localhost:7120":     "***",
		"redis:/u:PW@h":                    "***",
		"u:PW@h:1":                         "***",
		"user:PW":                          "***",
		"//user:PW@h":                      "***",
		"":                                 "***",
		"redis://user:%zz@h":               "redis://***",
		"redis://user:P W@h":               "redis://***",
		"redis://h\x00:PW@h":               "redis://***",
		"redis://user:PW@h1:1,user:PW@h:2": "redis://***@h:2",
	} {
		if got := redact.URL(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	got := redact.Text(`Post "http://user:***@h:4318/v1/traces?key=PW": dial tcp: refused, see redis://u:PW@h`)
	if want := `Post "http://***@h:4318/v1/traces?***": dial tcp: refused, see redis://***@h`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A secret goes where secrets are put, by right or by mistake, and no piece of it that could be told may come out.
func FuzzURL(f *testing.F) {
	for _, secret := range []string{"hunter2-tops3cret", "pa/ssw0rd/pa", "12/ssw0rd", "12?ssw0rd", "12#ssw0rd", "p@ssw0rd@x/y", "[::1]:12", "%zzzz",
		"a b c d e", "x:6379,y", "\\\\ssw0rd", "//ssw0rd//", "=====", "\r\nssw0rd"} {
		f.Add(secret)
	}
	// These make a host or a port, whatever was meant by them.
	plain := regexp.MustCompile(`^[A-Za-z0-9._-]*$|^\d{1,5}([/?#]|$)|@`)
	f.Fuzz(func(t *testing.T, secret string) {
		for _, place := range []string{
			"redis://user:SECRET@host:1", "redis://SECRET@host:1", "redis://:SECRET@host:1/2", "rediss://user:SECRET@host/0?skip_verify=true",
			"redis://user:SECRET,host:1", "redis://host:1?password=SECRET", "redis://user:x@host?password=SECRET", "unix://user:SECRET@/tmp/x",
			"unix:///tmp/x?password=SECRET", "http://SECRET@host:9090", "http://user:SECRET@host:9090/v1", "http://host/v1?key=SECRET", "http://host/v1#SECRET",
			"redis:user:SECRET@host:1", "user:SECRET@host:1", "redis://user:SECRET",
		} {
			if strings.HasPrefix(place, "redis://user:SECRET") && !strings.Contains(place, "@") && plain.MatchString(secret) {
				continue
			}
			text := strings.Replace(place, "SECRET", secret, 1)
			got := redact.URL(text)
			rest := got
			for _, known := range []string{"redis://", "rediss://", "unix://", "http://", "***", "user", "host", "/tmp/x", "/v1", ":9090", ":1", "/2", "/0"} {
				rest = strings.ReplaceAll(rest, known, " ")
			}
			if strings.Trim(rest, " @?:/") != "" {
				t.Errorf("%q is shown as %q", text, got)
			}
		}
	})
}
