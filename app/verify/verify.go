// Package verify holds what a run counted, by its own account and Redis's, against what Jaeger and Prometheus have
// stored of it.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"cachelab/app/cache"
	"cachelab/app/herd"
	"cachelab/app/record"
	"cachelab/app/redisstore"
)

// Options say where to look.
type Options struct {
	JaegerURL, PrometheusURL string
	// Patience is how long the two may take to catch up.
	Patience time.Duration
}

// Result is what the comparison came to.
type Result struct {
	Record record.Record
	Rows   []Row
	// Missing are the ids of traces that Jaeger was sent, and does not hold any more.
	Missing []string
}

// pause between two looks.
const pause = 500 * time.Millisecond

// Run compares, and looks again until all is equal or patience ends. The error says that there is nothing to compare;
// a difference is none.
func Run(ctx context.Context, r record.Record, o Options) (Result, error) {
	if len(slices.Concat(r.Run.TraceIDs...)) == 0 {
		why := "telemetry was off, or nobody took them; start the stack (make up) and run again"
		if r.Unsampled > 0 {
			why = "the sampler left out all of its traces; run again without OTEL_TRACES_SAMPLER"
		}
		return Result{}, fmt.Errorf("run %s sent no spans: %s", r.Run.ID, why)
	}
	for deadline := time.Now().Add(o.Patience); ; {
		result, err := look(ctx, r, o)
		if err != nil || result.Differing() == 0 || time.Now().After(deadline) {
			return result, err
		}
		if err := cache.Sleep(ctx, pause); err != nil {
			return result, err
		}
	}
}

func look(ctx context.Context, r record.Record, o Options) (Result, error) {
	m, err := readMetrics(ctx, o.PrometheusURL, r.Run.ID, r.Run.Mode, r.Age())
	if err != nil {
		return Result{}, err
	}
	spans, err := readSpans(ctx, o.JaegerURL, r.Run.TraceIDs)
	if err != nil {
		return Result{}, err
	}
	if len(m) == 0 && spans.total == 0 {
		return Result{}, fmt.Errorf("neither Prometheus nor Jaeger knows run %s: the stack was wiped or restarted since; run again", r.Run.ID)
	}
	return Result{Record: r, Rows: rows(r, spans, m), Missing: forgotten(r, spans)}, nil
}

// Differing returns how many rows differ.
func (r Result) Differing() int { return r.in(Differs) }

// Equal returns how many rows are equal.
func (r Result) Equal() int { return r.in(Equal) }

func (r Result) in(s State) int {
	return len(slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.State != s }))
}

// Sentence is the result in a sentence that can be checked.
func (r Result) Sentence() string {
	run := r.Record.Run
	claim := herd.Claim(run.BackendCalls, run.Expiries)
	if n := r.Differing(); n > 0 {
		return fmt.Sprintf("%s: %d of %d rows differ", claim, n, len(r.Rows))
	}
	var agree, but []string
	if worth := standing(r.Record); worth == redisstore.Exact {
		agree = append(agree, "Redis")
	} else {
		if run.StoreErrors > 0 {
			worth = "no check where commands failed"
		}
		but = append(but, fmt.Sprintf("Redis's own counts are %s", worth))
	}
	if run.Lost() {
		but = append(but, "a process was lost, and what it alone knew is not available")
	}
	gaps := len(but)
	if n := run.Spans.Dropped; n > 0 {
		but = append(but, fmt.Sprintf("%d spans were dropped on their way to Jaeger", n))
	}
	if n := r.Record.Unsampled; n > 0 {
		but = append(but, fmt.Sprintf("the sampler left out %d traces", n))
	}
	if len(r.Missing) > 0 {
		but = append(but, "Jaeger has forgotten traces of this run")
	}
	if len(but) == gaps {
		agree = append(agree, "Jaeger")
	}
	if s := run.PriceService; s != nil && s.Text != "" {
		but = append(but, "of the price service: "+s.Text)
	}
	who := strings.Join(append([]string{"the app"}, agree...), ", ") + " and Prometheus agree"
	return claim + ": " + strings.Join(append([]string{who}, but...), "; ")
}

// statusError is an HTTP status that is not 200.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("answered %d", int(s)) }

// requestTimeout bounds one request; a trace of load is about a megabyte.
const requestTimeout = 10 * time.Second

func getJSON(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	where := request.URL.Host + request.URL.Path
	response, err := http.DefaultClient.Do(request)
	if failed := (*neturl.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // without the URL, which may hold user and password
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", where, statusError(response.StatusCode))
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}
