package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"cachelab/app/facts"
	"cachelab/app/record"
	"cachelab/app/report"
	"cachelab/app/verify"
)

// patience is how long Jaeger and Prometheus may take to catch up.
const patience = 15 * time.Second

func newVerifyCommand(p Process) *cobra.Command {
	var (
		s       = &settings{}
		o       verify.Options
		run     string
		records string
		page    string
	)
	add(s, "run", "", "id of the run; the newest if left out", &run, text)
	add(s, "records", defaultRecords, "folder of the recorded runs", &records, text)
	add(s, "jaeger-url", "http://127.0.0.1:16686", "Jaeger's page and query API", &page, apiURL).secret = true
	add(s, "jaeger-api", "", "its query API, if that is at another address than the page", &o.JaegerURL, optional(apiURL)).secret = true
	add(s, "prometheus-url", "http://127.0.0.1:9090", "Prometheus's query API", &o.PrometheusURL, apiURL).secret = true
	add(s, "patience", patience.String(), "how long Jaeger and Prometheus may take to catch up", &o.Patience, duration(0))

	command := &cobra.Command{
		Use:   "verify",
		Short: "hold what a run counted against what Jaeger and Prometheus have stored",
		Long: `Reads the recorded counts of a run (of live, of each mode), its spans from Jaeger and its metrics from Prometheus, and prints a row for
each fact: the app's count, Redis's own, Jaeger's, Prometheus's, and whether they are equal. A row is "shared" when
another client used the Redis, and "not available" when Redis does not tell, or Jaeger does not hold all of the run's spans.
Exit codes: 0 all rows agree, 1 there is nothing to compare, 2 bad usage, 3 a row differs.`,
		Example: "  cachelab fixed && cachelab verify\n  cachelab verify --run rounds-20260101-120000-abcd",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return onScreen(c, p, s, func(ctx context.Context, terminal *report.Terminal) error {
				o.JaegerURL = cmp.Or(o.JaegerURL, page)
				return runVerify(ctx, terminal, records, run, o)
			})
		},
	}
	s.register(command.Flags())
	return command
}

// runVerify verifies the records of a run.
func runVerify(ctx context.Context, terminal *report.Terminal, records, run string, o verify.Options) error {
	all, err := record.Load(records, run)
	if err != nil {
		return err
	}
	differing, forgotten := 0, 0
	for _, r := range all {
		result, err := verify.Run(ctx, r, o)
		if err != nil {
			return err
		}
		printVerify(terminal, result)
		differing += result.Differing()
		forgotten += len(result.Missing)
	}
	switch {
	case differing > 0:
		return errVerdict{}
	case forgotten > 0:
		return fmt.Errorf("%d of the run's traces are not in Jaeger any more: it keeps the newest ones only, and forgets all when it restarts", forgotten)
	}
	return nil
}

// verifyNow verifies a run right after its end, if --verify says so. Both modes of a live run have one id.
func (s *settings) verifyNow(ctx context.Context, terminal *report.Terminal, run facts.Run) error {
	if !s.verify {
		return nil
	}
	return runVerify(ctx, terminal, s.Records, run.ID, verify.Options{JaegerURL: cmp.Or(s.jaeger, s.Links.Jaeger), PrometheusURL: s.prometheus, Patience: patience})
}

// verifyLast verifies the run whose modes these are.
func (s *settings) verifyLast(ctx context.Context, terminal *report.Terminal, runs []facts.Run) error {
	if len(runs) == 0 {
		return nil
	}
	return s.verifyNow(ctx, terminal, runs[0])
}

// worse is the error of runs: one of verify, or that of a verdict that is not ok.
func worse(checked error, runs []facts.Run) error {
	if errors.As(checked, new(errVerdict)) || verdicts(runs) == nil {
		return checked
	}
	return errors.Join(verdicts(runs), checked)
}

func printVerify(t *report.Terminal, result verify.Result) {
	cell := func(n *int) string {
		switch {
		case n == nil:
			return ""
		case *n < 0:
			return "missing"
		}
		return strconv.Itoa(*n)
	}
	var rows [][]string
	for _, r := range result.Rows {
		rows = append(rows, []string{r.Fact, cell(r.App), cell(r.Redis), cell(r.Jaeger), cell(r.Prometheus), string(r.State)})
	}
	run := result.Record.Run
	t.Notice(fmt.Sprintf("%s, run %s, started %s", run.Mode, run.ID, run.Started.Format(time.DateTime)))
	t.Table([]string{"fact", "app", "redis", "jaeger", "prometheus", ""}, rows,
		func(row int) bool { return result.Rows[row].State == verify.Differs })
	if len(result.Missing) > 0 {
		t.Warn("the first of the traces that Jaeger does not hold is " + result.Missing[0])
	}
	t.Say(fmt.Sprintf("%d rows equal", result.Equal()))
	t.Say(result.Sentence())
}
