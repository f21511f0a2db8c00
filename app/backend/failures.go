package backend

import (
	"fmt"
	"strconv"
	"strings"
)

// Failures says which calls fail: those numbered From to To, or a share of all. The zero value is none.
type Failures struct {
	From, To int     // call numbers, from 1, both included; To 0 means none
	Share    float64 // 0 to 1
}

// failAll is a To beyond every call.
const failAll = int(^uint(0) >> 1)

// ParseFailures reads "1" (one call), "2-5" (a range of calls), "all", "10%" (a share of the calls), or "".
func ParseFailures(text string) (Failures, error) {
	wrong := fmt.Errorf("want a call number like 1, a range like 2-5, a share like 10%%, or all")
	if text == "" {
		return Failures{}, nil
	}
	if text == "all" {
		return Failures{From: 1, To: failAll}, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return Failures{}, wrong
		}
		return Failures{Share: percent / 100}, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err != nil || err2 != nil || from < 1 || to < from {
		return Failures{}, wrong
	}
	return Failures{From: from, To: to}, nil
}

// String returns the text that [ParseFailures] reads.
func (f Failures) String() string {
	switch {
	case f.Share > 0:
		return strconv.FormatFloat(f.Share*100, 'g', 6, 64) + "%"
	case f.To == 0:
		return ""
	case f.To == failAll:
		return "all"
	case f.From == f.To:
		return strconv.Itoa(f.From)
	}
	return fmt.Sprintf("%d-%d", f.From, f.To)
}

// hit says whether call number fails, by its draw from 0 to 1.
func (f Failures) hit(number int, draw float64) bool {
	if f.Share > 0 {
		return draw < f.Share
	}
	return f.From <= number && number <= f.To
}
