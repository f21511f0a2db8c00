package herd

import (
	"fmt"

	"cachelab/app/cache"
)

// JudgeEarly is the verdict on a mode that refreshes before the expiry, under the fill lock: it promises that no backend call is
// redundant. How young a value is when somebody refreshes it is by chance, so repeated calls are its price; and whether that is in
// time, and nobody misses, is a matter of the traffic. The plain form, without the lock, promises nothing.
func JudgeEarly(l Ledger) Verdict {
	v := judgeAhead(l, l.Redundant)
	if plain := l.Acquired+l.Held == 0; plain && l.Redundant > 0 && l.Outcomes[cache.Failed]+l.SetsRefused+l.SetsUnanswered == 0 {
		v.OK = true
		v.Text = fmt.Sprintf("%s for %s, %d redundant: %.1f calls for each refresh, without the lock", Count(l.BackendCalls, "backend call"),
			Count(l.Requests, "request"), l.Redundant, float64(l.BackendCalls)/float64(l.BackendCalls-l.Redundant))
		return v
	}
	if v.OK && l.Repeated > 0 {
		v.Text += " (by chance: the value was younger than half its TTL)"
	}
	if v.OK && l.Expiries > 1 {
		v.Text += fmt.Sprintf("; %s, as nobody refreshed in time", absences(l))
	}
	return v
}

// JudgeStale is the verdict on a mode that refreshes in the background, under the fill lock: it promises that no backend call is
// redundant or repeated, and that nobody waits after the first fill.
func JudgeStale(l Ledger) Verdict {
	v := judgeAhead(l, l.Redundant+l.Repeated)
	if l.Expiries > 1 {
		v.OK, v.Invariant = false, false
		v.Text += fmt.Sprintf(", but %s: those who asked then waited", absences(l))
	}
	return v
}

// absences says how often the key was absent after the first fill: each time, a fill found it so.
func absences(l Ledger) string {
	if l.Expiries == 2 {
		return "the key was absent once more"
	}
	return fmt.Sprintf("the key was absent %d times more", l.Expiries-1)
}

// judgeAhead is the verdict on a mode with the lock, which should have spared so many calls.
func judgeAhead(l Ledger, spared int) Verdict {
	v := Verdict{Invariant: spared == 0, Unknown: l.SetsUnanswered > 0,
		Text: fmt.Sprintf("%s for %s, %d redundant, %d repeated", Count(l.BackendCalls, "backend call"), Count(l.Requests, "request"), l.Redundant, l.Repeated)}
	switch {
	case l.SetsRefused+l.ReleasesRefused > 0 || l.Outcomes[cache.Failed] > 0:
		v.Text += refusals(l) + failures(l)
	case l.SetsUnanswered+l.ReleasesUnanswered > 0:
		v.Text += ": " + cannotBeJudged(l)
	case l.Lost > 0:
		v.Text += ", and " + lost(l)
	case !v.Invariant:
		v.Text += ": the lock should have spared them"
	case l.Requests == 0:
		v.Text += ": nobody asked"
	default:
		v.OK = true
	}
	return v
}
