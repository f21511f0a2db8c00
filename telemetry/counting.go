package telemetry

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// SpanCounts say what became of the run's spans. Dropped is known when they are flushed: then Ended =
// Exported + Dropped.
type SpanCounts struct {
	Ended    int `json:"ended"`
	Exported int `json:"exported"`
	Dropped  int `json:"dropped"`
}

// Plus returns the sum.
func (n SpanCounts) Plus(more SpanCounts) SpanCounts {
	return SpanCounts{n.Ended + more.Ended, n.Exported + more.Exported, n.Dropped + more.Dropped}
}

// counter counts spans at both ends of the batch processor, which drops silently when its queue is full. It is
// a SpanProcessor for the near end, and wraps the exporter at the far one.
type counter struct {
	next            sdktrace.SpanExporter
	ended, exported atomic.Int64
	closed          atomic.Bool // nothing is exported any more
	flushed         atomic.Bool // the counts are final
	failure         atomic.Pointer[error]
}

func (c *counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c *counter) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended.Add(1)
	}
}
func (c *counter) ForceFlush(context.Context) error { return nil }

// counts takes whatever was not exported when the processor was shut down as dropped.
func (c *counter) counts() SpanCounts {
	n := SpanCounts{Exported: int(c.exported.Load())}
	n.Ended = int(c.ended.Load())
	if c.flushed.Load() {
		n.Dropped = n.Ended - n.Exported
	}
	return n
}

// ExportSpans implements [sdktrace.SpanExporter]. An error is remembered, not returned: the batch processor would only log
// it. However large the batches are to be, no request has more than batchSize spans, so that a flush makes progress.
func (c *counter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for part := range slices.Chunk(spans, batchSize) {
		c.send(ctx, part)
	}
	return nil
}

// send sends spans in one request, or in halves where that is larger than the receiver takes.
func (c *counter) send(ctx context.Context, spans []sdktrace.ReadOnlySpan) {
	if c.closed.Load() {
		return
	}
	err := c.next.ExportSpans(ctx, spans)
	if half := len(spans) / 2; half > 0 && tooLarge(err) {
		c.send(ctx, spans[:half])
		c.send(ctx, spans[half:])
		return
	}
	if err != nil {
		c.failure.CompareAndSwap(nil, &err)
		rejected, partial := rejectedSpans(err)
		if !partial {
			return
		}
		c.exported.Add(-int64(rejected))
	}
	c.exported.Add(int64(len(spans)))
}

// Shutdown implements both interfaces; the exporter is shut down by [Telemetry.Shutdown].
func (c *counter) Shutdown(context.Context) error { return nil }

// err is the first failure.
func (c *counter) err() error {
	if failure := c.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// partialSuccess is how the OTLP exporters tell that the receiver accepted a batch, but for some spans. Their
// error type is internal, so there is only its text.
var partialSuccess = regexp.MustCompile(`OTLP partial success: .*\((\d+) spans rejected\)`)

func rejectedSpans(err error) (n int, partial bool) {
	m := partialSuccess.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	n, _ = strconv.Atoi(m[1])
	return n, true
}

// oversize is how a batch is refused as a whole for its size: by gRPC servers, which take 4 MiB unless told otherwise (in Go,
// Java, Rust), by HTTP servers, and by the exporters themselves. How many bytes a batch has, only they know.
var oversize = regexp.MustCompile(`larger than max|exceeds maximum size|too large|Too Large`)

func tooLarge(err error) bool { return err != nil && oversize.MatchString(err.Error()) }

// flush shuts the batch processor down, which exports what it holds, and goes on for as long as that makes
// progress: a slow receiver gets all, one that stopped answering costs no more than patience.
func (c *counter) flush(ctx context.Context, processor sdktrace.SpanProcessor, patience time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.flushed.Store(true)
	done := make(chan error, 1)
	go func() { done <- processor.Shutdown(ctx) }()

	for last, since := c.exported.Load(), time.Now(); ; {
		select {
		case err := <-done:
			return err
		case <-time.After(patience / 20):
			if exported := c.exported.Load(); exported != last {
				last, since = exported, time.Now()
			}
			if time.Since(since) >= patience {
				c.closed.Store(true)
				return fmt.Errorf("no span was accepted for %v", patience)
			}
		}
	}
}
