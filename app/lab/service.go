package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cachelab/app/backend"
	"cachelab/app/cache"
	"cachelab/app/facts"
	"cachelab/app/herd"
	"cachelab/app/modes"
	"cachelab/app/observe"
	"cachelab/telemetry"
)

// service is the backend that a session calls: one inside this process, or a client of another's.
type service interface {
	cache.Loader
	observe.Backend
	// Answered returns when the service gave the answer that value is; the zero time if that cannot be known here.
	Answered(value string) time.Time
}

// openService opens the backend: the one at the configured URL, else one inside. The bridge must be there before the first call.
func (s *session) openService(ctx context.Context) (err error) {
	told := func(ctx context.Context, c backend.Call) {
		s.bridge.DescribeCall(ctx, c)
		herd.CountCall(ctx, c.Redundant, c.Repeated)
	}
	if s.config.BackendURL == "" && s.splits() {
		s.service, err = s.shareBackend(s)
		return err
	}
	if s.config.BackendURL == "" {
		config := s.config.Backend
		config.TTL, config.OnCall, config.Probe = s.config.TTL, told, observe.Service(s.telemetry, s.id, false)
		s.service = backend.New(config)
		return nil
	}
	s.client, err = backend.Dial(ctx, backend.ClientConfig{URL: s.config.BackendURL, Run: s.account(), TTL: s.config.TTL,
		Limit: s.config.answerLimit(), Callers: s.config.Workers, Transport: telemetry.Carried, OnCall: told})
	s.service = s.client
	return err
}

// reported is what this process tells of the backend in its metrics: those of all processes of the run add up.
type reported struct {
	service
	coordinates, takesPart bool
}

// Stats implements [observe.Backend].
func (r reported) Stats() backend.Stats {
	n := r.service.Stats()
	if r.coordinates { // who calls is told
		n.Redundant, n.Repeated = 0, 0
	}
	if r.takesPart { // who serves knows
		n.Queued = 0
	}
	return n
}

// account is the name under which the backend counts this session's calls: the run's id, and the mode where modes take turns.
func (s *session) account() string {
	if s.scenario == modes.Live || s.scenario == modes.Gallery {
		return s.id + "-" + s.mode.Name
	}
	return s.id
}

// answerLimit is how long an answer may take: twice what the last of a herd in the queue needs, and two seconds more.
func (c Config) answerLimit() time.Duration { return 2*c.patience() + 2*time.Second }

// settle asks what the backend counted, when the last call is over. Interrupted or not, it is worth having.
func (s *session) settle(ctx context.Context, l herd.Ledger) {
	n := s.service.Stats()
	s.facts.BackendPeak, s.served = n.Peak, n.Calls
	if s.client == nil && s.splits() && s.config.Joiners > 0 {
		s.served = l.BackendCalls // who joined has a backend inside, of which nothing else is known here
	}
	if s.client == nil {
		return
	}
	about := &facts.PriceService{URL: s.config.BackendURL}
	s.facts.PriceService = about
	report, err := s.client.Report(context.WithoutCancel(ctx))
	if err != nil {
		about.Text, s.served = "what it counted is not known: "+err.Error(), -1
		return
	}
	about.Told = &facts.Served{Calls: report.Calls, Peak: report.Peak, Redundant: report.Redundant, Repeated: report.Repeated}
	made := s.client.Made()
	if s.splits() { // it is the others who call
		made.Calls = l.BackendCalls
	}
	about.Text = backend.Account(made, report.Calls)
	if slices.ContainsFunc(s.facts.Processes, func(p facts.Process) bool { return p.Lost != "" }) {
		about.Text = fmt.Sprintf("the lab knows of %s: what a lost process called is not known", herd.Count(l.BackendCalls, "call"))
	}
	s.facts.BackendPeak, s.served = report.Peak, 0
	if spans := report.Spans; spans != nil && spans.Ended > 0 {
		s.served = report.Calls
		s.telemetry.SpansElsewhere(telemetry.SpanCounts(*spans))
	}
}
