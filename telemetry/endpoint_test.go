package telemetry_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"cachelab/telemetry"
	"cachelab/telemetry/otlptest"
)

// A proxy of the shell is for the outside: what goes to this machine goes there directly.
func TestTheShellsProxyIsNotAskedForThisMachine(t *testing.T) {
	if os.Getenv("PAST_THE_PROXY") != "" { // net/http reads the variables once in a process, so this is one of its own
		tel := start(t, telemetry.On, "OTEL_EXPORTER_OTLP_ENDPOINT", os.Getenv("PAST_THE_PROXY"),
			"OTEL_EXPORTER_OTLP_PROTOCOL", os.Getenv("PROTOCOL"), "OTEL_METRICS_EXPORTER", "none")
		burst(tel.TracerProvider.Tracer("test"), 10)
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	receiver, grpc := otlptest.Start(t), otlptest.StartGRPC(t)
	for protocol, url := range map[string]string{"http/protobuf": receiver.URL, "grpc": grpc.URL} {
		for _, host := range []string{"127.0.0.1", "localhost"} {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
			child.Env = append(os.Environ(), "PAST_THE_PROXY="+strings.Replace(url, "127.0.0.1", host, 1), "PROTOCOL="+protocol, "NO_PROXY=", "no_proxy=")
			for _, variable := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
				child.Env = append(child.Env, variable+"="+proxy.URL)
			}
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%s to %s: %v\n%s", protocol, host, err, out)
			}
		}
	}
	equal(t, "over HTTP", len(receiver.Spans()), 20)
	equal(t, "over gRPC", len(grpc.Spans()), 20)
	equal(t, "asked of the proxy", asked.Load(), 0)
}

func TestEndpoints(t *testing.T) {
	receiver, grpc := otlptest.Start(t), otlptest.StartGRPC(t)
	hostport := strings.TrimPrefix(receiver.URL, "http://")
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const (
		base      = "OTEL_EXPORTER_OTLP_ENDPOINT"
		forTraces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
		protocol  = "OTEL_EXPORTER_OTLP_PROTOCOL"
		noMetrics = "OTEL_METRICS_EXPORTER"
	)
	tests := []struct {
		name string
		env  []string
		err  []string // nil: the spans arrive
	}{
		{"a base URL", []string{base, receiver.URL}, nil},
		{"a base URL with a slash", []string{base, receiver.URL + "/"}, nil},
		{"the signal's own URL", []string{forTraces, receiver.URL + "/v1/traces", noMetrics, "none"}, nil},
		{"gRPC", []string{base, grpc.URL, protocol, "grpc", noMetrics, "none"}, nil},
		{"a base URL with the path", []string{base, receiver.URL + "/v1/traces"},
			[]string{base, "leave the path out"}},
		{"the signal's own URL without path", []string{forTraces, receiver.URL, noMetrics, "none"},
			[]string{"404", forTraces + " is used as it is: write the whole URL, like " + receiver.URL + "/v1/traces"}},
		{"host and port without scheme", []string{base, "localhost:4317"}, []string{`"localhost:4317": want a URL with its scheme`}},
		{"address and port without scheme", []string{base, hostport}, []string{"want a URL with its scheme"}},
		{"https to a plain port", []string{base, "https://" + hostport, noMetrics, "none"}, []string{"write http:// instead of https://"}},
		{"gRPC to the HTTP port", []string{base, receiver.URL, protocol, "grpc", noMetrics, "none"},
			[]string{"set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}},
		{"HTTP to the gRPC port", []string{base, grpc.URL, noMetrics, "none"}, []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}},
		{"an unknown protocol", []string{base, receiver.URL, protocol, "http/json"}, []string{`"http/json": want http/protobuf or grpc`}},
		{"an unknown exporter", []string{"OTEL_TRACES_EXPORTER", "zipkin"}, []string{`OTEL_TRACES_EXPORTER="zipkin": want otlp, console or none`}},
		{"nobody there", []string{base, "http://127.0.0.1:1", noMetrics, "none"}, []string{"connection refused", "start the receiver"}},
		{"nobody answers", []string{base, "http://" + silent.Addr().String(), noMetrics, "none"}, []string{"no answer within 1s"}},
		{"a password", []string{base, "http://user:s3cret@127.0.0.1:1"}, []string{"http://127.0.0.1:1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := len(receiver.Spans()) + len(grpc.Spans())
			tel, err := telemetry.Start(t.Context(), telemetry.Options{Switch: telemetry.On, Run: "run-1", Lookup: env(test.env...), Console: &bytes.Buffer{}})
			if test.err != nil {
				for _, want := range test.err {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Fatalf("got %v, want %q", err, want)
					}
				}
				if strings.Contains(err.Error(), "/v1/traces/v1/traces") || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			burst(tel.TracerProvider.Tracer("test"), 10)
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			equal(t, "arrived", len(receiver.Spans())+len(grpc.Spans())-before, 10)
		})
	}
}
