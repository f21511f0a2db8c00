package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"cachelab/app/modes"
	"cachelab/telemetry"
)

// underTheHood is the page to dig in.
func underTheHood(table modes.Table) *page {
	p := newPage(table, hoodPage, "Under the hood", "What the herd and its fix cost: Redis, waiting, the backend's queue, telemetry and the Go runtime.")
	p.linkTo(herdPage, "Thundering Herd")
	p.linkTo(galleryPage, "Gallery")

	p.row("Redis")
	p.panel(8, 8, "Redis commands", description("Commands that the workers sent in each interval.",
		"as many SET as GET: every worker stores the same value.", "mostly GET, the polls of waiters; a SET and a DEL at each expiry."),
		p.bars(count, query(added(in(telemetry.MetricRedisCommands), "mode, command"), "{{mode}} {{command}}")))
	p.panel(8, 8, "Redis commands by node", description("The same by the Redis that they were sent to: one, or the masters of a cluster, or before and after a failover.",
		"one colour: GET and SET of a key go to the node that has it.", "in a cluster two: that of the key and that of the lock; where both are sent in one command, one."),
		p.bars(count, query(added(in(telemetry.MetricRedisCommands), string(telemetry.Node)), "{{"+string(telemetry.Node)+"}}")).
			ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic))) // a node is of no mode
	p.panel(8, 8, "Commands per request", description("Redis commands of a run divided by its requests: the price of waiting, so far.",
		"2: GET and SET.", "about 8 to 12: polling costs commands, and saves calls."),
		p.lines(count, query(during(fmt.Sprintf("%s / (%s > 0)", now(in(telemetry.MetricRedisCommands), perRun), now(in(telemetry.MetricRequests), perRun)), perRun), modeAndRun)).Decimals(1))
	p.panel(8, 8, "Pool connections", description("Connections of the Redis client's pool to each node, used and idle.",
		"as many as there are workers; used only for the blink of a command, so seldom seen.", "the same: a waiter that sleeps holds no connection."),
		p.lines(count, query(during(now(in(telemetry.MetricPoolUsage), "mode, node, state"), perMode), "{{mode}} {{state}}, {{node}}")))
	p.panel(8, 8, "Pool waits and timeouts", description("How often a command had to wait for a connection, and how often it got none in time, in each interval.",
		"0: the pool has a connection for each worker.", "0, too. Anything else means that the pool is too small, and latencies tell more of the pool than of Redis."),
		p.bars(count, query(added(in(telemetry.MetricPoolWaits), "mode, node"), "{{mode}} waits, {{node}}"), query(added(in(telemetry.MetricPoolTimeouts), "mode, node"), "{{mode}} timeouts, {{node}}")))
	p.panel(8, 8, "Pool use time", description("How long a command held its connection, p50 and p99: the round trip to Redis.",
		"peaks at each expiry, when all ask at once.", "low: jitter spreads the polls."),
		p.lines(millis, query(quantile("0.5", in(telemetry.MetricPoolUseTime), perMode), "{{mode}} p50"), query(quantile("0.99", in(telemetry.MetricPoolUseTime), perMode), "{{mode}} p99")))

	p.row("Waiting and the lock")
	p.panel(8, 8, "Polls", description("GETs of waiters in each interval.", "none.", "a few for each waiter: 10 to 20 ms apart at first, up to 50 ms later."),
		p.bars(count, query(added(in(telemetry.MetricPolls), perMode), "{{mode}}")))
	p.panel(8, 8, "Re-checks that hit", description("Workers that got the lock, looked once more, and found the value: each would have been a call too many.",
		"none: no lock, no re-check.", "now and then 1. That is no fault, it is what the re-check is for."),
		p.bars(count, query(added(in(telemetry.MetricLockRechecks), perMode), "{{mode}}")))
	p.panel(8, 8, "Releases and timeouts", description("Locks released, locks lost (another had taken over), and waiters past their limit, in each interval.",
		"none.", "one released for each acquired; lost and timeouts stay 0, or the lock's TTL is shorter than a fill."),
		p.bars(count, query(added(in(telemetry.MetricLockReleases), "mode, result"), "{{mode}} {{result}}"), query(added(in(telemetry.MetricLockTimeouts), perMode), "{{mode}} timeouts")))

	p.row("The backend")
	p.panel(8, 8, "Redundant and repeated calls", description("Backend calls that began while another for the same key was in flight (redundant), or when its newest answer was younger than half the TTL (repeated), in each interval.",
		"all but the first of each herd are redundant.", "none."),
		p.bars(count, query(added(in(telemetry.MetricBackendRedundant), perMode), "{{mode}} redundant"), query(added(in(telemetry.MetricBackendRepeated), perMode), "{{mode}} repeated")))
	p.panel(8, 8, "Backend queue", description("Calls that queue because the backend answers only so many at once, at each push.",
		"up to workers minus capacity: 40 of 50.", "0: one caller never queues."),
		p.lines(count, query(during(now(in(telemetry.MetricBackendQueued), perRun), perRun), modeAndRun)).Decimals(0))
	p.panel(8, 8, "Backend call duration", description("p50 and p99 of a backend call, queueing included.",
		"far above the backend's own latency: it is the queue.", "the backend's own latency, p50 and p99 alike."),
		p.lines(seconds, query(quantile("0.5", in(telemetry.MetricBackendDuration), perMode), "{{mode}} p50"), query(quantile("0.99", in(telemetry.MetricBackendDuration), perMode), "{{mode}} p99")))

	p.row("Telemetry and the Go runtime")
	p.panel(6, 8, "Spans exported", description("Spans that Jaeger accepted, in each interval.", "five for each worker and round.", "more: each poll is a span."),
		p.bars(count, query(added(in(telemetry.MetricSpans, label(telemetry.Result, "exported")), perMode), "{{mode}}")))
	p.panel(6, 8, "Spans dropped", description("Spans that were lost, in each interval: with these, a waterfall would lie.", "0.", "0."),
		p.bars(count, query(added(in(telemetry.MetricSpans, label(telemetry.Result, "dropped")), perMode), "{{mode}} dropped")))
	p.panel(6, 8, "Goroutines", description("Goroutines of each run's process.", "one for each worker, during a round.", "the same: a waiter is a goroutine that sleeps."),
		p.lines(count, query(inModes(now(in(telemetry.MetricGoroutines), run)), modeAndRun)).Decimals(0))
	p.panel(6, 8, "Memory", description("Memory that the Go runtime uses, for each run's process.", "flat.", "flat."),
		p.lines(memory, query(inModes(now(in(telemetry.MetricGoMemory), run)), modeAndRun)))
	p.panel(24, 6, "Allocations", description("Bytes allocated in each interval, for each run's process.", "a burst at each expiry.", "spread over the time of waiting: spans and replies of the polls."),
		p.bars(memory, query(ofMode(added(in(telemetry.MetricGoAllocs), run)), "{{"+run+"}}")).
			ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic))) // a live run is in two modes
	return p
}
