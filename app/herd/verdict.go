package herd

import (
	"fmt"
	"strings"

	"cachelab/app/cache"
)

// Verdict says whether a run did what its mode promises, in a sentence that can be checked.
type Verdict struct {
	OK        bool   `json:"ok"`
	Invariant bool   `json:"invariant"` // the mode's; of broken and of those with a fill lock: backend calls = expiry cycles
	Unknown   bool   `json:"-"`         // whether the invariant held, nobody can know: a SET was not answered
	Text      string `json:"text"`
}

// A Judge gives the verdict on a run.
type Judge func(Ledger) Verdict

// JudgeHerd is the verdict on a mode without protection: it promises one backend call for every miss, and a value that is
// cached after it.
func JudgeHerd(l Ledger) Verdict {
	v := verdictOn(l)
	answered := l.Sent.Set - l.SetsUnanswered
	switch {
	case l.BackendCalls != l.Misses:
		v.Text += fmt.Sprintf(", but %s: not every miss called the backend", Count(l.Misses, "miss"))
	case l.Requests == 0:
		v.Text += ": nobody asked"
	case l.SetsUnanswered > 0:
		v.Text += ": " + cannotBeJudged(l)
	case l.BackendCalls > 0 && l.Expiries == 0 && answered == l.SetsRefused:
		v.Text += ": no value was cached, so there was no cycle to see"
	case l.Workers > 1 && l.BackendCalls <= l.Expiries:
		v.Text += ": no herd, although nothing prevents it"
	case l.Workers == 1:
		v.OK = true
		v.Text += ": one worker is no herd"
	default:
		v.OK = true
		v.Text += ": a thundering herd"
	}
	v.Text += refusals(l) + failures(l)
	return v
}

// JudgeSingleFill is the verdict on a mode with a fill lock: it promises one successful backend call for every
// expiry cycle, no lost lock, and a value for everybody. What is known goes before what can only be guessed.
func JudgeSingleFill(l Ledger) Verdict {
	v := verdictOn(l)
	switch {
	case l.SetsRefused+l.ReleasesRefused > 0 || l.Outcomes[cache.Failed] > 0:
		v.Text += refusals(l) + failures(l)
	case l.SetsUnanswered+l.ReleasesUnanswered > 0:
		v.Text += ": " + cannotBeJudged(l)
	case l.Lost > 0:
		v.Text += ", and " + lost(l)
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
		v.Text += fmt.Sprintf(": one fill per expiry cycle, and %s", Count(l.BackendErrors, "failed call"))
	}
	return v
}

// JudgeEachProcess is the verdict on a mode whose callers share a call in each process: it promises at most one successful backend
// call for every expiry cycle and process. With one process that is [JudgeSingleFill].
func JudgeEachProcess(l Ledger) Verdict {
	if l.Processes <= 1 {
		return JudgeSingleFill(l)
	}
	v := verdictOn(l)
	most := l.Expiries * l.Processes
	v.Invariant = l.BackendCalls <= most
	switch answered := l.BackendCalls - l.BackendErrors; {
	case l.SetsRefused > 0 || l.Outcomes[cache.Failed] > 0:
		v.Text += refusals(l) + failures(l)
	case l.SetsUnanswered > 0:
		v.Text += ": " + cannotBeJudged(l)
	case answered > most:
		v.Text += fmt.Sprintf(": more than one successful call for each expiry cycle and each of %d processes", l.Processes)
	case l.Requests == 0:
		v.Text += ": nobody asked"
	case answered == most:
		v.OK = true
		v.Text += fmt.Sprintf(": one backend call per expiry cycle in each of %d processes", l.Processes)
	default:
		v.OK = true
		v.Text += fmt.Sprintf(": at most one backend call per expiry cycle in each of %d processes", l.Processes)
	}
	return v
}

// JudgeRings is judge's verdict, and says when those who waited were not woken: that costs time, and no promise.
func JudgeRings(judge Judge) Judge {
	return func(l Ledger) Verdict {
		v := judge(l)
		if n := l.RingsFailed; n > 0 {
			v.Text += fmt.Sprintf("; %d PUBLISH failed (%v): who waited looked by itself, every 500 ms", n, l.Errors.Publish)
		}
		return v
	}
}

// cannotBeJudged says why: whether a SET that was never answered ended a cycle, nobody knows.
func cannotBeJudged(l Ledger) string {
	var what []string
	if n := l.SetsUnanswered; n > 0 {
		what = append(what, Count(n, "SET"))
	}
	if n := l.ReleasesUnanswered; n > 0 {
		what = append(what, Count(n, "release"))
	}
	return fmt.Sprintf("cannot be judged: %s %s not answered", strings.Join(what, " and "), was(l.SetsUnanswered+l.ReleasesUnanswered))
}

// refusals are the SETs and releases that the store refused, and why; "" for none.
func refusals(l Ledger) (text string) {
	if n := l.SetsRefused; n > 0 {
		text += fmt.Sprintf(", and %s %s refused (%v)", Count(n, "SET"), was(n), l.Errors.Set)
	}
	if n := l.ReleasesRefused; n > 0 {
		text += fmt.Sprintf(", and %s of the fill lock %s refused (%v)", Count(n, "release"), was(n), l.Errors.Unlock)
	}
	return text
}

func failures(l Ledger) string {
	failed := l.Outcomes[cache.Failed]
	if failed == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d of %s failed", failed, Count(l.Requests, "request"))
}

func lost(l Ledger) string {
	text := fmt.Sprintf("%s %s lost", Count(l.Lost, "fill lock"), was(l.Lost))
	switch {
	case l.LostEarly > 0:
		return text + ", before the TTL had passed: another client deleted the lock, or Redis was emptied"
	case l.StoreErrors > 0:
		return text + ": the fill takes longer than the lock's TTL, or Redis did not answer"
	}
	return text + ": the fill takes longer than the lock's TTL"
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
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
	return Verdict{Invariant: l.BackendCalls == l.Expiries, Unknown: l.SetsUnanswered > 0, Text: Claim(l.BackendCalls, l.Expiries)}
}

// Claim is the invariant's numbers in words that can be checked: "250 backend calls / 5 expiries = 50.0". Without an expiry
// there is no ratio.
func Claim(backendCalls, expiries int) string {
	text := Count(backendCalls, "backend call") + " / " + Count(expiries, "expiry")
	if expiries > 0 {
		text += fmt.Sprintf(" = %.1f", float64(backendCalls)/float64(expiries))
	}
	return text
}

// Count is "1 worker", "2 workers", "3 expiries", "4 misses", "5 refreshes".
func Count(n int, what string) string {
	stem, isY := strings.CutSuffix(what, "y")
	switch {
	case n == 1:
		return "1 " + what
	case isY:
		what = stem + "ies"
	case strings.HasSuffix(what, "s"), strings.HasSuffix(what, "sh"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
