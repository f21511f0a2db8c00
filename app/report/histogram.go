package report

import (
	"fmt"
	"slices"
	"time"
)

// bins is how many bars a distribution has, at most.
const bins = 80

// binning is what the distributions of a page have in common: bins of one width, a round number, from 0.
type binning struct {
	scale
	Width time.Duration
	Axis  []mark
}

func newBinning(runs []Run) binning {
	b := binning{scale: scale{total: time.Millisecond}}
	for _, r := range runs {
		if n := len(r.Latencies); n > 0 {
			b.total = max(b.total, r.Latencies[n-1])
		}
	}
	b.Width = b.tick(bins)
	b.total = b.total/b.Width*b.Width + b.Width
	b.Axis = b.axis()
	return b
}

// histogram is the distribution of a run's latencies.
type histogram struct {
	Bins []bin
	Bars []rect
	Most int    // requests in the fullest bin
	Text string // in words
}

// bin is a bar that is not empty.
type bin struct {
	From, To time.Duration
	N        int
}

func (b binning) of(r Run) histogram {
	var h histogram
	for rest := r.Latencies; len(rest) > 0; {
		from := rest[0] / b.Width * b.Width
		n, _ := slices.BinarySearch(rest, from+b.Width) // the first that is not in the bin
		h.Bins = append(h.Bins, bin{from, from + b.Width, n})
		h.Most = max(h.Most, n)
		rest = rest[n:]
	}
	for _, one := range h.Bins {
		height := max(1, binHeight*float64(one.N)/float64(h.Most))
		h.Bars = append(h.Bars, rect{Class: "latency", X: b.percent(one.From), Width: b.percent(b.Width), Y: binHeight - height, Height: height})
	}
	h.Text = fmt.Sprintf("%s, %s", count(len(r.Latencies), "request"), r.Latency.text())
	return h
}
