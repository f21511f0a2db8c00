package herd

import (
	"fmt"

	"cachelab/app/cache"
)

// Verdict says whether a run did what its mode promises, in a sentence that can be checked.
type Verdict struct {
	OK        bool   `json:"ok"`
	Invariant bool   `json:"invariant"` // backend calls = expiry cycles
	Text      string `json:"text"`
}

// A Judge gives the verdict on a run.
type Judge func(Ledger) Verdict

// JudgeHerd is the verdict on a mode without protection: it promises one backend call for every miss.
func JudgeHerd(l Ledger) Verdict {
	v := verdictOn(l)
	switch {
	case l.BackendCalls != l.Misses:
		v.Text += fmt.Sprintf(", but %d misses: not every miss called the backend", l.Misses)
	case l.Requests == 0:
		v.Text += ": nobody asked"
	case l.Workers > 1 && l.BackendCalls <= l.Expiries:
		v.Text += ": no herd, although nothing prevents it"
	case l.Workers == 1:
		v.OK = true
		v.Text += ": one worker is no herd"
	default:
		v.OK = true
		v.Text += ": a thundering herd"
	}
	if failed := l.Outcomes[cache.Failed]; failed > 0 {
		v.Text += fmt.Sprintf(", and %d of %d requests failed", failed, l.Requests)
	}
	return v
}

// JudgeSingleFill is the verdict on a mode with a fill lock: it promises one successful backend call for every
// expiry cycle, no lost lock, and a value for everybody.
func JudgeSingleFill(l Ledger) Verdict {
	v := verdictOn(l)
	switch failed := l.Outcomes[cache.Failed]; {
	case failed > 0:
		v.Text += fmt.Sprintf(", and %d of %d requests failed", failed, l.Requests)
	case l.Lost > 0:
		v.Text += fmt.Sprintf(", and %d fill locks were lost: the fill takes longer than the lock's TTL", l.Lost)
		if l.StoreErrors > 0 {
			v.Text += ", or Redis did not answer"
		}
	case l.BackendCalls-l.BackendErrors != l.Expiries:
		v.Text += ": not one successful call for each expiry cycle"
	case l.Requests == 0:
		v.Text += ": nobody asked"
	case l.BackendCalls == 0:
		v.OK = true
		v.Text += ": every cycle was filled by another process"
	case v.Invariant:
		v.OK = true
		v.Text += ": one backend call per expiry cycle"
	default:
		v.OK = true
		v.Text += fmt.Sprintf(": one fill per expiry cycle, and %d failed calls", l.BackendErrors)
	}
	return v
}

// JudgeStream is the verdict on a stream. It is judge's, unless the key was there all the time: then there was
// nothing to do wrong.
func JudgeStream(judge Judge) Judge {
	return func(l Ledger) Verdict {
		if l.Misses > 0 || l.Outcomes[cache.Failed] > 0 {
			return judge(l)
		}
		v := verdictOn(l)
		v.OK = true
		v.Text += ": the key did not expire in this time"
		return v
	}
}

func verdictOn(l Ledger) Verdict {
	v := Verdict{
		Invariant: l.BackendCalls == l.Expiries,
		Text:      fmt.Sprintf("%d backend calls / %d expiries", l.BackendCalls, l.Expiries),
	}
	if l.Expiries > 0 {
		v.Text += fmt.Sprintf(" = %.1f", CallsPerExpiry(l.Counts))
	}
	return v
}
