package verify

import (
	"slices"

	"cachelab/app/cache"
	"cachelab/app/record"
	"cachelab/app/redisstore"
	"cachelab/telemetry"
)

// Row is one fact, as each of those who should know it tells it. A nil cell has no say.
type Row struct {
	Fact                           string
	App, Redis, Jaeger, Prometheus *int
	State                          State
}

// State is what the cells of a row come to.
type State string

// The states of a row.
const (
	Equal        State = "equal"
	Differs      State = "differs"
	Shared       State = "shared"        // equal but for Redis, whose counts are not of this run alone
	NotAvailable State = "not available" // equal but for Redis, which does not tell, or Jaeger, which does not hold all
)

// standing is what Redis's own counts are worth as a check.
func standing(r record.Record) redisstore.Standing {
	if r.Run.StoreErrors > 0 && r.Run.RedisCommands.Standing == redisstore.Exact {
		return redisstore.NotAvailable // whether it executed a command that failed, nobody knows
	}
	return r.Run.RedisCommands.Standing
}

// forgotten are the traces that Jaeger was sent and does not hold. Where spans were dropped, it may never have had them.
func forgotten(r record.Record, spans spanFacts) []string {
	if r.Run.Spans.Dropped > 0 && spans.total >= r.Run.Spans.Exported {
		return nil
	}
	return spans.missing
}

// rows compares a recorded run with what is stored.
func rows(r record.Record, spans spanFacts, m metrics) []Row {
	lost := len(forgotten(r, spans)) > 0
	t := table{standing: standing(r), lost: r.Run.Lost(), traces: !lost && r.Run.Spans.Dropped == 0 && r.Unsampled == 0}
	run, redis := r.Run, r.Run.RedisCommands
	n := func(v int) *int { return &v }
	span := func(name string) *int { return n(spans.named[name]) }
	sent := r.Sent
	// What Redis must have counted, by the table of the store. A cell of Redis is its count without what other commands added.
	inScripts := sent.StoreAndUnlock - run.SetsLate // SETs
	sets := sent.Set + sent.Lock + inScripts
	adds := redisstore.CommandGet.Adds(sent.Get, 0, 0).Plus(redisstore.CommandLock.Adds(sent.Lock, 0, 0)).
		Plus(redisstore.CommandSet.Adds(sent.Set, 0, 0)).Plus(redisstore.CommandStoreAndUnlock.Adds(sent.StoreAndUnlock, inScripts, 0)).
		Plus(redisstore.CommandUnlock.Adds(sent.Unlock, 0, run.Lock.Released))
	own := func(counted, all, these int) *int { return n(counted - (all - these)) }
	slices := 0
	for _, ids := range run.TraceIDs {
		slices += len(ids)
	}

	refused := n(spans.refused)
	if run.StoreErrors > 0 {
		refused = nil // a release that got no answer is lost too, and its span does not know
	}
	t.add(factRounds, n(run.Rounds), nil, nil, m.sum(telemetry.MetricRounds))
	t.add(factRoundSpans, n(slices), nil, span(telemetry.RoundSpan(run.Mode)), nil)
	t.add("worker spans, requests", n(run.Requests), nil, span(telemetry.SpanWorker), m.sum(telemetry.MetricRequests))
	for _, outcome := range []string{"hit", "filled", "waited", "error"} {
		t.add("requests: "+outcome, n(run.Outcomes[cache.Outcome(outcome)]), nil, n(spans.outcome[outcome]),
			m.sum(telemetry.MetricRequests, telemetry.Outcome.String(outcome)))
	}
	t.add("latencies", n(run.Requests), nil, nil, m.count(telemetry.MetricRequestDuration))

	t.add("GET", n(sent.Get), own(redis.Get, adds.Get, sent.Get), span(telemetry.SpanGet), m.command(telemetry.SpanGet))
	// Jaeger tells what Redis replied, the others what a drill made of it.
	t.add("GET: hit", n(run.Gets.Hit), nil, n(spans.hits-r.Masked), m.sum(telemetry.MetricGets, telemetry.Result.String("hit")))
	t.add("GET: miss", n(run.Gets.Miss), nil, n(spans.misses+r.Masked), m.sum(telemetry.MetricGets, telemetry.Result.String("miss")))
	t.add("polls", n(run.Polls), nil, n(spans.polls), m.sum(telemetry.MetricPolls))
	t.add("MISS", n(r.Missed), nil, span(telemetry.SpanMiss), m.sum(telemetry.MetricMisses))
	t.add("wait for fill", n(r.Waiters), nil, span(telemetry.SpanWait), m.count(telemetry.MetricWaitDuration))
	t.add("links", n(r.Links), nil, n(spans.links), nil)

	t.add("SET NX PX", n(sent.Lock), nil, span(telemetry.SpanLock), m.command(telemetry.SpanLock))
	t.add("SET NX PX: acquired", n(run.Lock.Acquired), nil, n(spans.acquired), m.sum(telemetry.MetricLockAttempts, telemetry.Result.String("acquired")))
	t.add("SET NX PX: held", n(run.Lock.Held), nil, n(spans.held), m.sum(telemetry.MetricLockAttempts, telemetry.Result.String("held")))
	t.add("re-checks that hit", n(run.Lock.Rechecked), nil, n(spans.rechecks-r.Masked), m.sum(telemetry.MetricLockRechecks))
	t.add("SET", n(sent.Set), nil, span(telemetry.SpanSet), m.command(telemetry.SpanSet))
	t.add("SET, DEL (EVAL)", n(sent.StoreAndUnlock), own(redis.Eval, adds.Eval, sent.StoreAndUnlock), span(telemetry.SpanStoreAndUnlock),
		m.command(telemetry.SpanStoreAndUnlock))
	t.add("SET and SET NX PX", n(sets), own(redis.Set, adds.Set, sets), n(spans.named[telemetry.SpanSet]+spans.named[telemetry.SpanLock]+spans.stored),
		plus(plus(m.command(telemetry.SpanSet), m.command(telemetry.SpanLock)), n(*m.command(telemetry.SpanStoreAndUnlock)-run.SetsLate)))
	t.add("DEL (EVAL)", n(sent.Unlock), own(redis.Eval, adds.Eval, sent.Unlock), span(telemetry.SpanDel), m.command(telemetry.SpanDel))
	t.add("DEL: released", n(run.Lock.Released), own(redis.Del, adds.Del, run.Lock.Released), n(spans.released), m.sum(telemetry.MetricLockReleases, telemetry.Result.String("released")))
	t.add("DEL: lost", n(run.Lock.Lost), nil, refused, m.sum(telemetry.MetricLockReleases, telemetry.Result.String("lost")))
	t.add("DEL: refused or unanswered", n(run.Refused.Release+run.Unanswered.Release), nil, nil,
		m.sum(telemetry.MetricLockReleases, telemetry.Result.String("error")))
	t.add("PUBLISH", n(sent.Publish), own(redis.Publish, sent.Publish, sent.Publish), span(telemetry.SpanPublish), m.command(telemetry.SpanPublish))
	wakes := func(by cache.Wake, app int) {
		t.add("wakes by "+string(by), n(app), nil, n(spans.wakes[string(by)]), m.sum(telemetry.MetricWakes, telemetry.By.String(string(by))))
	}
	wakes(cache.Message, run.Wakes.Message)
	wakes(cache.Look, run.Wakes.Look)
	wakes(cache.Reconnect, run.Wakes.Reconnect)
	t.add("waiters past their limit", n(run.Lock.Timeouts), nil, nil, m.sum(telemetry.MetricLockTimeouts))

	t.add("backend calls", n(run.BackendCalls), nil, span(telemetry.SpanBackendCall), m.sum(telemetry.MetricBackendCalls))
	answers := func(result string) *int {
		return m.sum(telemetry.MetricBackendAnswers, telemetry.Result.String(result))
	}
	t.add("backend calls: answered", n(run.BackendCalls-run.BackendErrors), nil, nil, answers("ok"))
	t.add("backend calls: failed", n(run.BackendErrors), nil, n(spans.failedCalls), plus(answers("error"), answers("unknown")))
	if price := "price-service: GET /price"; r.Served < 0 { // it did not tell
		t.rows = append(t.rows, Row{Fact: price, State: NotAvailable})
	} else {
		t.add(price, n(r.Served), nil, n(spans.served), nil)
	}
	t.add("backend calls: redundant", n(run.Redundant), nil, n(spans.redundant), m.sum(telemetry.MetricBackendRedundant))
	t.add("backend calls: repeated", n(run.Repeated), nil, n(spans.repeated), m.sum(telemetry.MetricBackendRepeated))
	t.add("expiries", n(run.Expiries), nil, n(spans.ended), m.sum(telemetry.MetricExpiries))

	t.traces = !lost // what was sent is there, be it part of what there was
	stored := spans.total
	if r.Served < 0 {
		stored -= spans.ofService // it did not tell how many it sent
	}
	if unsure := run.Spans.Exported + run.Spans.Dropped; stored > run.Spans.Exported && stored <= unsure {
		stored = run.Spans.Exported // a batch that was not confirmed in time may have arrived all the same
	}
	t.add("spans exported", n(run.Spans.Exported), nil, n(stored), m.sum(telemetry.MetricSpans, telemetry.Result.String("exported")))
	t.add("spans dropped", n(run.Spans.Dropped), nil, nil, m.sum(telemetry.MetricSpans, telemetry.Result.String("dropped")))
	t.add(factP99, n(int(run.Latency.P99*1000+0.5)), nil, nil, m.micros(telemetry.MetricRunLatency, telemetry.Quantile.String("p99")))
	t.add(factMax, n(int(run.Latency.Max*1000+0.5)), nil, nil, m.micros(telemetry.MetricRunLatency, telemetry.Quantile.String("max")))
	ok := 0
	if run.Verdict.OK {
		ok = 1
	}
	t.add(factVerdict, n(ok), nil, nil, m.sum(telemetry.MetricRunVerdict))
	return t.rows
}

// table collects rows.
type table struct {
	standing redisstore.Standing
	traces   bool // Jaeger holds all that there is to compare
	lost     bool // a process was, and with it what it alone knew
	rows     []Row
}

// ofCoordinator are the facts that a run of several processes does not have of them.
var ofCoordinator = []string{factRounds, factRoundSpans, factP99, factMax, factVerdict}

// The facts that are compared in any case.
const (
	factRounds     = "rounds"
	factRoundSpans = "round spans (one a slice)"
	factP99        = "latency p99, us"
	factMax        = "latency max, us"
	factVerdict    = "verdict ok"
)

func (t *table) add(fact string, app, redis, jaeger, prometheus *int) {
	if t.lost && !slices.Contains(ofCoordinator, fact) {
		t.rows = append(t.rows, Row{Fact: fact, App: app, State: NotAvailable})
		return
	}
	row := Row{Fact: fact, App: app, Redis: redis, Jaeger: jaeger, Prometheus: prometheus, State: Equal}
	if redis != nil && t.standing != redisstore.Exact {
		row.Redis = nil
		row.State = Shared
		if t.standing == redisstore.NotAvailable {
			row.State = NotAvailable
		}
	}
	if jaeger != nil && !t.traces {
		row.Jaeger = nil
		row.State = NotAvailable
	}
	for _, cell := range []*int{row.Redis, row.Jaeger, prometheus} {
		if cell != nil && *cell != *app {
			row.State = Differs
		}
	}
	t.rows = append(t.rows, row)
}

func plus(a, b *int) *int {
	sum := *a + *b
	return &sum
}
