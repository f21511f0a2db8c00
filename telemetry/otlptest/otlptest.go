// Package otlptest has OTLP receivers for tests: they keep what they get, and misbehave on demand.
package otlptest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// PrometheusPath is where a Prometheus takes metrics.
const PrometheusPath = "/api/v1/otlp/v1/metrics"

// Receiver takes OTLP over HTTP at /v1/traces and /v1/metrics, and metrics at [PrometheusPath] too.
type Receiver struct {
	URL string

	server *httptest.Server
	mu     sync.Mutex // guards all below
	spans  []Span
	pushes [][]*metricspb.ResourceMetrics
	reject int64
	delay  time.Duration
	silent chan struct{} // closed when it may speak again; nil if it speaks
}

// Span is a received span with what is known of its process.
type Span struct {
	*tracepb.Span
	Resource map[string]string
}

// Start starts a receiver, and stops it when the test ends.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", r.traces)
	mux.HandleFunc("POST /v1/metrics", r.metrics)
	mux.HandleFunc("POST "+PrometheusPath, r.metrics)
	r.server = httptest.NewServer(mux)
	r.URL = r.server.URL
	t.Cleanup(func() {
		r.Silence(false)
		r.server.Close()
	})
	return r
}

// RejectSpans makes the next request that carries spans a partial success with n of them rejected.
func (r *Receiver) RejectSpans(n int) { r.set(func() { r.reject = int64(n) }) }

// Silence makes it accept connections and never answer, or answer again.
func (r *Receiver) Silence(silent bool) {
	r.set(func() {
		if r.silent != nil {
			close(r.silent)
			r.silent = nil
		}
		if silent {
			r.silent = make(chan struct{})
		}
	})
}

// Delay delays each answer by d.
func (r *Receiver) Delay(d time.Duration) { r.set(func() { r.delay = d }) }

// Stop makes it go away for good.
func (r *Receiver) Stop() {
	r.server.CloseClientConnections()
	r.server.Listener.Close()
}

// Spans returns what was received so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Pushes returns the metrics of each push so far.
func (r *Receiver) Pushes() [][]*metricspb.ResourceMetrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([][]*metricspb.ResourceMetrics(nil), r.pushes...)
}

func (r *Receiver) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// read decodes a request, or waits out a silence and refuses.
func (r *Receiver) read(w http.ResponseWriter, request *http.Request, into proto.Message) bool {
	body, err := io.ReadAll(request.Body)
	r.mu.Lock()
	silent, delay := r.silent, r.delay
	r.mu.Unlock()
	time.Sleep(delay)
	if silent != nil {
		select {
		case <-silent:
		case <-request.Context().Done():
		case <-time.After(30 * time.Second):
		}
		return false
	}
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func (r *Receiver) traces(w http.ResponseWriter, request *http.Request) {
	var in collectortrace.ExportTraceServiceRequest
	if !r.read(w, request, &in) {
		return
	}
	answer := &collectortrace.ExportTraceServiceResponse{}
	r.set(func() {
		before := len(r.spans)
		r.spans = append(r.spans, spansOf(in.ResourceSpans)...)
		if r.reject > 0 && len(r.spans) > before {
			answer.PartialSuccess = &collectortrace.ExportTracePartialSuccess{RejectedSpans: r.reject, ErrorMessage: "too many"}
			r.spans = r.spans[:len(r.spans)-int(r.reject)]
			r.reject = 0
		}
	})
	reply(w, answer)
}

func spansOf(resources []*tracepb.ResourceSpans) (all []Span) {
	for _, rs := range resources {
		about := map[string]string{}
		for _, a := range rs.Resource.GetAttributes() {
			about[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range rs.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, Span{s, about})
			}
		}
	}
	return all
}

func (r *Receiver) metrics(w http.ResponseWriter, request *http.Request) {
	var in collectormetrics.ExportMetricsServiceRequest
	if !r.read(w, request, &in) {
		return
	}
	if len(in.ResourceMetrics) > 0 && len(in.ResourceMetrics[0].ScopeMetrics) > 0 {
		r.set(func() { r.pushes = append(r.pushes, in.ResourceMetrics) })
	}
	reply(w, &collectormetrics.ExportMetricsServiceResponse{})
}

func reply(w http.ResponseWriter, answer proto.Message) {
	body, err := proto.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(body)
}

// GRPC takes spans over gRPC.
type GRPC struct {
	collectortrace.UnimplementedTraceServiceServer
	URL string

	mu      sync.Mutex // guards all below
	spans   []Span
	largest int
}

// StartGRPC starts a gRPC receiver of traces, and stops it when the test ends.
func StartGRPC(t testing.TB) *GRPC {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &GRPC{URL: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(server, g)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return g
}

// Export implements the OTLP service.
func (g *GRPC) Export(_ context.Context, in *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.spans)
	g.spans = append(g.spans, spansOf(in.ResourceSpans)...)
	g.largest = max(g.largest, len(g.spans)-before)
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// Spans returns what was received so far.
func (g *GRPC) Spans() []Span {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Span(nil), g.spans...)
}

// Largest returns the most spans that came in one request.
func (g *GRPC) Largest() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.largest
}
