package facts

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Links are the addresses of the pages that show a run.
type Links struct{ Jaeger, Grafana string }

// Trace is Jaeger's page of a trace.
func (l Links) Trace(id string) string { return strings.TrimSuffix(l.Jaeger, "/") + "/trace/" + id }

// Run is Grafana's page of the lab, at the time of the run.
func (l Links) Run(r Run) string { return l.Dashboard(r.ID, r.Started, r.ended()) }

// Gallery is Grafana's page of the gallery, at the time of its runs; ok is whether there is anything to see.
func (l Links) Gallery(runs []Run) (address string, ok bool) {
	for _, r := range runs {
		ok = ok || r.Spans.Exported > 0
	}
	if !ok {
		return "", false
	}
	first, last := runs[0], runs[len(runs)-1]
	return l.page("gallery", first.ID, first.Started, last.ended()), true
}

func (r Run) ended() time.Time {
	return r.Started.Add(time.Duration(r.Duration * float64(time.Second)))
}

// MaxLinks is how many rounds are linked to.
const MaxLinks = 10

// margin is what the dashboard shows before and after a round, which is too short to be seen alone.
const margin = 5 * time.Second

// Dashboard is the address of the dashboard that shows a run from one time to another.
func (l Links) Dashboard(run string, from, to time.Time) string {
	return l.page("thundering-herd", run, from, to)
}

func (l Links) page(uid, run string, from, to time.Time) string {
	return fmt.Sprintf("%s/d/%s?from=%d&to=%d&var-run=%s", strings.TrimSuffix(l.Grafana, "/"), uid,
		from.Add(-margin).UnixMilli(), to.Add(margin).UnixMilli(), url.QueryEscape(run))
}

// Address is a link to a page of the stack.
type Address struct {
	Text string `json:"text"`
	URL  string `json:"url"`
}

// Addresses are the pages that show a run; none if its spans were not delivered.
func (l Links) Addresses(r Run) (all []Address) {
	if r.Spans.Exported == 0 {
		return nil
	}
	for i, at := range r.Traced() {
		if i == MaxLinks {
			break
		}
		all = append(all, Address{fmt.Sprintf("%s, round %d in Jaeger", r.Mode, at.Round), l.Trace(at.IDs[0])})
	}
	return append(all, Address{r.Mode + " in Grafana", l.Run(r)})
}
