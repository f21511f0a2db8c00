package lab_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"cachelab/app/backend"
	"cachelab/app/facts"
	"cachelab/app/lab"
	"cachelab/app/modes"
	"cachelab/app/report"
)

// stalledScreen takes nothing until it is released: a terminal after Ctrl-S.
type stalledScreen struct {
	release chan struct{}
	text    strings.Builder
}

func (s *stalledScreen) Write(text []byte) (int, error) {
	<-s.release
	return s.text.Write(text)
}

func TestARunDoesNotWaitForWhoReadsIt(t *testing.T) {
	const workers, rounds = 50, 40 // about 8,000 lines
	var runs []facts.Run
	for name, run := range map[string]func(*lab.Lab) error{
		"rounds": func(l *lab.Lab) error {
			r, err := l.Run(t.Context(), lab.Plan{Mode: modes.All()[0]})
			runs = []facts.Run{r}
			return err
		},
		"live": func(l *lab.Lab) (err error) {
			runs, err = l.Live(t.Context(), lab.LivePlan{Modes: modes.All()[:2],
				Each: 750 * time.Millisecond, For: 1500 * time.Millisecond, Think: 2 * time.Millisecond})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			screen := &stalledScreen{release: make(chan struct{})}
			released := sync.OnceFunc(func() { close(screen.release) })
			defer released()
			terminal := report.PlainTerminal(screen)
			c := config(t, "embedded")
			c.Workers, c.Rounds, c.Quiet = workers, rounds, false
			c.TTL, c.Backend = 20*time.Millisecond, backend.Config{Latency: 5 * time.Millisecond}
			l, err := lab.Open(t.Context(), c, terminal)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ended := make(chan error, 1)
			go func() { ended <- run(l) }()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the run waits for its reader")
				released()
				<-ended
			}
			released()
			if err := terminal.Close(); err != nil {
				t.Error(err)
			}
			requests, misses := 0, 0
			for _, r := range runs {
				requests += r.Requests
				misses += r.Gets.Miss
				if !r.Verdict.OK || r.Outcomes["error"] > 0 || !strings.Contains(screen.text.String(), "summary of "+r.ID) {
					t.Errorf("%s: %+v, %v", r.Mode, r.Verdict, r.Outcomes)
				}
			}
			if name == "rounds" && requests != workers*rounds {
				t.Errorf("%d requests, want %d", requests, workers*rounds)
			}
			// In its turn, all of it was shown. (Re-checks, and polls that missed, are told in other words.)
			if told := strings.Count(screen.text.String(), " GET MISS\n"); name == "rounds" && (told != misses || told < 1000) {
				t.Errorf("%d misses are told, %d were", told, misses)
			}
			t.Logf("%d lines", strings.Count(screen.text.String(), "\n"))
		})
	}
}
