package report

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// margin is what the dashboard shows before and after a round, which is too short to be seen alone.
const margin = 5 * time.Second

// Dashboard is the address of the dashboard that shows a run from one time to another.
func (l Links) Dashboard(run string, from, to time.Time) string {
	return fmt.Sprintf("%s/d/thundering-herd?from=%d&to=%d&var-run=%s", strings.TrimSuffix(l.Grafana, "/"),
		from.Add(-margin).UnixMilli(), to.Add(margin).UnixMilli(), url.QueryEscape(run))
}
