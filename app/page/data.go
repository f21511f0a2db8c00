package page

import (
	"slices"
	"time"

	"cachelab/app/facts"
	"cachelab/app/herd"
)

// Bounds of what is drawn, so that the page of a large run stays small.
const (
	maxRows      = 60  // workers of a round
	maxSteps     = 400 // of the calls in flight
	maxBins      = 80  // of a distribution
	maxStretches = 150 // of a series
)

// data is what the script draws, and all that the page knows. Times are nanoseconds from the round's start.
type data struct {
	Command  string        `json:"command"`
	Settings []Setting     `json:"settings"`
	Runs     []runData     `json:"runs"`
	Planned  int           `json:"planned"`
	Error    string        `json:"error"`
	Version  string        `json:"version"`
	Made     time.Time     `json:"made"`
	BinWidth time.Duration `json:"bin_ns"`     // of the distributions of all runs
	Stretch  time.Duration `json:"stretch_ns"` // of the series of all runs
}

// runData is one run. Its facts are those of its JSON, but for the traces of later rounds.
type runData struct {
	Facts     facts.Run         `json:"facts"`
	Color     string            `json:"color"`
	Rounds    []facts.Waterfall `json:"rounds"` // that were recorded, with at most maxRows workers each
	Latencies []bin             `json:"latencies"`
	Series    []herd.Step       `json:"series"` // of the gallery: a step for each stretch of time in which something was due
}

// bin is how many requests took as long as From, or longer by less than a bin's width.
type bin struct {
	From time.Duration `json:"from_ns"`
	N    int           `json:"n"`
}

func newData(p Page) data {
	d := data{Command: p.Command, Settings: p.Settings, Runs: []runData{}, Planned: p.Planned, Error: p.Error, Version: p.Version, Made: p.Made,
		BinWidth: binWidth(p.Runs), Stretch: stretch(p.Runs)}
	for _, r := range p.Runs {
		one := runData{Facts: r.Run, Color: r.Color, Rounds: []facts.Waterfall{}, Latencies: distribution(r.Latencies, d.BinWidth), Series: []herd.Step{}}
		if r.Series != nil {
			one.Series = r.Series.Steps(d.Stretch)
		}
		one.Facts.TraceIDs = r.TraceIDs[:min(len(r.TraceIDs), facts.MaxLinks)]
		if round := r.Waterfall; len(round.Rows) > 0 {
			round.Rows, round.InFlight = round.Sample(maxRows), round.Coarse(maxSteps)
			one.Rounds = append(one.Rounds, round)
		}
		d.Runs = append(d.Runs, one)
	}
	return d
}

// binWidth is a round number of milliseconds, so that the longest latency lies in the last of at most maxBins.
func binWidth(runs []Run) time.Duration {
	longest := time.Duration(0)
	for _, r := range runs {
		if n := len(r.Latencies); n > 0 {
			longest = max(longest, r.Latencies[n-1])
		}
	}
	return parts(longest, maxBins)
}

// stretch is a round number of milliseconds, so that the longest series has at most maxStretches steps.
func stretch(runs []Run) time.Duration {
	longest := time.Duration(0)
	for _, r := range runs {
		if r.Series != nil {
			longest = max(longest, r.Series.Length())
		}
	}
	return parts(longest, maxStretches)
}

// parts is a round number of milliseconds of which at most n, begun ones too, are as long as the whole.
func parts(whole time.Duration, n int) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, width := range []time.Duration{unit, 2 * unit, 5 * unit} {
			if whole/width < time.Duration(n) {
				return width
			}
		}
	}
}

// distribution counts latencies, which are in ascending order. Empty bins are left out.
func distribution(latencies []time.Duration, width time.Duration) []bin {
	bins := []bin{}
	for rest := latencies; len(rest) > 0; {
		from := rest[0] / width * width
		n, _ := slices.BinarySearch(rest, from+width) // the first that is not in the bin
		bins = append(bins, bin{from, n})
		rest = rest[n:]
	}
	return bins
}
