package telemetry

import "go.opentelemetry.io/otel/attribute"

// Every name that the lab gives to a span or an attribute is in this file, and every metric in metrics.go. Dashboards, alert
// rules and tests take them from there.

// Service is the default of service.name; OTEL_SERVICE_NAME changes it. PriceService is the backend, wherever it runs: that
// name stays.
const (
	Service      = "cachelab"
	PriceService = "price-service"
)

// Spans. Those of a round are named after the mode too: "round broken".
const (
	SpanRound          = "round"
	SpanWorker         = "worker"
	SpanGet            = "GET"
	SpanMiss           = "MISS"
	SpanLock           = "SET NX PX"
	SpanBackendCall    = "backend call"
	SpanSet            = "SET"
	SpanDel            = "DEL"
	SpanStoreAndUnlock = "SET, DEL"
	SpanPublish        = "PUBLISH"
	SpanWait           = "wait for fill"
	SpanRefresh        = "refresh" // in the background
)

// Spans of the price service: one for each backend call, and in it the wait for capacity, of a call that found none, and the
// work.
const (
	SpanPrice   = "GET /price"
	SpanQueued  = "queued"
	SpanCompute = "compute"
)

// Labels are the attributes that every metric of a mode of a run has.
type Labels struct{ Mode, Scenario string }

// Set returns the labels with more attributes.
func (l Labels) Set(more ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(more, Mode.String(l.Mode), Scenario.String(l.Scenario))...)
}

// RoundSpan is the name of a round's root span.
func RoundSpan(mode string) string { return SpanRound + " " + mode }

// Attributes of spans.
const (
	Mode     = attribute.Key("mode")     // also of every metric
	Scenario = attribute.Key("scenario") // likewise
	Run      = attribute.Key("run")      // the run's id
	Round    = attribute.Key("round")    // from 1
	Slice    = attribute.Key("slice")    // of the round's workers, from 0
	Workers  = attribute.Key("workers")  // of the round, in all slices
	Number   = attribute.Key("number")   // of the worker in its round, from 1
	Process  = attribute.Key("process")  // of the worker, from 1, if the run has several
	Outcome  = attribute.Key("outcome")  // also of metrics

	// At the end of a round, on its root spans.
	BackendCalls = attribute.Key("backend_calls")
	Expiries     = attribute.Key("expiries")
	Waiters      = attribute.Key("waiters") // on a winner's MISS: those that saw its token, as far as known
	Verdict      = attribute.Key("verdict")
	Dashboard    = attribute.Key("dashboard") // the address of the dashboard at the round's time

	Winner       = attribute.Key("winner") // true on the worker and the MISS that filled under the lock
	CacheHit     = attribute.Key("cache.hit")
	Recheck      = attribute.Key("recheck")   // the winner's second GET
	Overtaken    = attribute.Key("overtaken") // the second GET found a newer value than the one to be refreshed
	LockAcquired = attribute.Key("lock.acquired")
	LockReleased = attribute.Key("lock.released")
	Stored       = attribute.Key("stored") // false: the lock was lost, and a newer value is there
	TTL          = attribute.Key("ttl_ms")
	PTTL         = attribute.Key("pttl_ms")     // how long the value has left, where it is asked for: 0 just expired
	EndedCycle   = attribute.Key("ended_cycle") // this SET ended an expiry cycle
	Polls        = attribute.Key("polls")
	Waited       = attribute.Key("waited_ms")

	CallNumber = attribute.Key("call")
	Queued     = attribute.Key("queued_ms")
	InFlight   = attribute.Key("in_flight")
	Redundant  = attribute.Key("redundant") // another call for the same key was in flight
	Repeated   = attribute.Key("repeated")  // none was, but the newest answer was younger than half the TTL

	// Of drills.
	Fault     = attribute.Key("fault")       // what was done, on the span of the moment and on its event
	ProcessID = attribute.Key("process.pid") // of the process that reported the step, if it was another
)

// EventWake is the event on a wait each time the flight looks; By says why.
const EventWake = "wake"

// EventFault is the event on a span at the moment of a drill's fault.
const EventFault = "fault"

// ResourceRun is the run's id as an attribute of the resource; RunLabel is what Prometheus makes of it, if it is told to
// (promote_resource_attributes). A run may be of many processes: service.instance.id is that of the process.
const (
	ResourceRun = attribute.Key("cachelab.run")
	RunLabel    = "cachelab_run"
)

// Attributes of metrics beside mode and outcome.
const (
	Result   = attribute.Key("result")
	Quantile = attribute.Key("quantile")
	Command  = attribute.Key("command")
	By       = attribute.Key("by")   // of a wake: message, look, reconnect
	Node     = attribute.Key("node") // host:port of the Redis that a command is sent to, and of a pool: one, or a cluster's masters
)
