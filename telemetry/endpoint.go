package telemetry

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"cachelab/telemetry/redact"
)

// Where the stack of this repository listens. Not localhost, which may be [::1] first, where others may listen.
const (
	ownPrometheus  = "http://127.0.0.1:9090"
	prometheusPath = "/api/v1/otlp/v1/metrics"
)

// signal is traces or metrics: the two differ in where they go and in their variables.
type signal struct {
	name     string // as in the variables' names
	path     string // appended to a base URL
	fallback string // the full URL where the lab looks when no variable says otherwise
}

var (
	traces  = signal{name: "TRACES", path: "/v1/traces", fallback: "http://127.0.0.1:4318/v1/traces"}
	metrics = signal{name: "METRICS", path: "/v1/metrics", fallback: ownPrometheus + prometheusPath}
)

// String returns "traces" or "metrics".
func (s signal) String() string { return strings.ToLower(s.name) }

// lookup is os.LookupEnv, or a test's.
type lookup func(string) (string, bool)

// get returns a variable; an empty one counts as unset, as the specification says.
func (env lookup) get(name string) string {
	if value, ok := env(name); ok {
		return value
	}
	return ""
}

// endpoint says where a signal goes, and which variable said so.
type endpoint struct {
	url      string
	variable string // "" for the lab's default
	overGRPC bool
}

func (e endpoint) String() string {
	if e.variable == "" {
		return e.url
	}
	return fmt.Sprintf("%s (from %s)", redact.URL(e.url), e.variable)
}

// timeout is how long one request to the receiver may take: what the variables say, in milliseconds, or the lab's own.
func (s signal) timeout(env lookup) time.Duration {
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_" + s.name + "_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"} {
		if ms, err := strconv.Atoi(env.get(variable)); err == nil && ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return exportTimeout
}

// exporterKind is otlp, none or console.
func (s signal) exporterKind(env lookup) (string, error) {
	variable := "OTEL_" + s.name + "_EXPORTER"
	switch kind := env.get(variable); kind {
	case "", "otlp":
		return "otlp", nil
	case "none", "console":
		return kind, nil
	default:
		return "", fmt.Errorf("%s=%q: want otlp, console or none", variable, kind)
	}
}

// endpoint follows the specification: the variable of the signal is used as it is, the common one is a base URL
// that the signal's path is appended to; with gRPC there is no path.
func (s signal) endpoint(env lookup) (endpoint, error) {
	grpc, err := s.grpc(env)
	if err != nil {
		return endpoint{}, err
	}
	e := endpoint{overGRPC: grpc, variable: "OTEL_EXPORTER_OTLP_" + s.name + "_ENDPOINT"}
	e.url = env.get(e.variable)
	base := false
	if e.url == "" {
		e.variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
		e.url = env.get(e.variable)
		base = true
	}
	if e.url == "" {
		if grpc {
			return endpoint{overGRPC: true, url: "http://127.0.0.1:4317"}, nil
		}
		return endpoint{url: s.fallback}, nil
	}
	u, ok := redact.Parse(e.url)
	if !ok || u.Scheme != "http" && u.Scheme != "https" {
		return endpoint{}, fmt.Errorf("%s=%q: want a URL with its scheme, like http://localhost:4318 (for gRPC http://localhost:4317, with OTEL_EXPORTER_OTLP_PROTOCOL=grpc)",
			e.variable, redact.URL(e.url))
	}
	if base && !grpc {
		if strings.Contains(u.Path, "/v1/") {
			return endpoint{}, fmt.Errorf("%s=%q: want a base URL, to which %s is appended; leave the path out, or set OTEL_EXPORTER_OTLP_%s_ENDPOINT to the whole URL",
				e.variable, redact.URL(e.url), s.path, s.name)
		}
		u.Path = strings.TrimSuffix(u.Path, "/") + s.path
		e.url = u.String()
	}
	return e, nil
}

func (s signal) grpc(env lookup) (bool, error) {
	variable := "OTEL_EXPORTER_OTLP_" + s.name + "_PROTOCOL"
	protocol := env.get(variable)
	if protocol == "" {
		variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
		protocol = env.get(variable)
	}
	switch protocol {
	case "", "http/protobuf":
		return false, nil
	case "grpc":
		return true, nil
	}
	return false, fmt.Errorf("%s=%q: want http/protobuf or grpc", variable, protocol)
}

// advice says what to change when the receiver at e refused. The reason is the client's.
func (s signal) advice(e endpoint, reason string) string {
	u, err := url.Parse(e.url)
	if err != nil {
		return "correct the URL"
	}
	tls := strings.Contains(reason, "first record does not look like a TLS handshake") ||
		strings.Contains(reason, "server gave HTTP response to HTTPS client")
	switch {
	case strings.Contains(reason, "connection refused"):
		return "start the receiver (make up), or leave it with --telemetry off"
	case tls:
		return "the port speaks plain text: write http:// instead of https://"
	case e.overGRPC:
		return "is that a gRPC port (often 4317)? For HTTP set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf and a URL like http://localhost:4318"
	case strings.Contains(reason, "malformed HTTP"), strings.Contains(reason, "readLoopPeekFail"), strings.Contains(reason, "EOF"):
		return "the port does not speak HTTP: use the HTTP port (often 4318), or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
	case !strings.HasSuffix(u.Path, s.path):
		return fmt.Sprintf("OTEL_EXPORTER_OTLP_%s_ENDPOINT is used as it is: write the whole URL, like %s%s", s.name, strings.TrimSuffix(redact.URL(e.url), "/"), s.path)
	}
	return fmt.Sprintf("set OTEL_EXPORTER_OTLP_%s_ENDPOINT to a URL that takes %s, or OTEL_%s_EXPORTER=none", s.name, s, s.name)
}
