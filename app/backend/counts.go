package backend

import (
	"maps"
	"time"

	"cachelab/app/price"
)

// Stats is what the service counted.
type Stats struct {
	Calls    int
	InFlight int // callers inside now, running or queued
	Queued   int // those of them that queue
	Peak     int // the most in flight at once
	// Redundant and Repeated calls: those that the cache should have spared. See [Call].
	Redundant, Repeated int
}

// keyState is what tells whether a call for a key is one too many.
type keyState struct {
	inFlight int
	answered time.Time // when the newest answer came; a failure is none
}

func (s *Service) enter(key string) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Calls++
	if s.stats.Calls <= maxAnswers {
		s.answers = append(s.answers, 0)
	} else {
		s.answers[(s.stats.Calls-1)%maxAnswers] = 0
	}
	s.stats.InFlight++
	s.stats.Peak = max(s.stats.Peak, s.stats.InFlight)
	s.recent.note(s.stats.InFlight)
	call := Call{Number: s.stats.Calls, InFlight: s.stats.InFlight}
	call.Redundant, call.Repeated = s.tooMany(key)
	return call
}

// tooMany counts a call for the key in, and tells whether the cache should have spared it.
func (s *Service) tooMany(key string) (redundant, repeated bool) {
	k := s.keys[key]
	if k == nil {
		s.forgetKeys()
		k = &keyState{}
		s.keys[key] = k
	}
	redundant = k.inFlight > 0
	repeated = !redundant && !k.answered.IsZero() && time.Since(k.answered) < s.config.TTL/2
	k.inFlight++
	if redundant {
		s.stats.Redundant++
	}
	if repeated {
		s.stats.Repeated++
	}
	return redundant, repeated
}

// manyKeys is when those are forgotten that tell nothing any more.
const manyKeys = 10_000

func (s *Service) forgetKeys() {
	if len(s.keys) < manyKeys {
		return
	}
	maps.DeleteFunc(s.keys, func(_ string, k *keyState) bool { return k.inFlight == 0 && time.Since(k.answered) >= s.config.TTL/2 })
}

// answer notes an answer, and returns its time.
func (s *Service) answer(key string, number int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.keys[key].answered = now
	if number > s.stats.Calls-maxAnswers {
		s.answers[(number-1)%maxAnswers] = max(1, now.Sub(s.began))
	}
	return now
}

func (s *Service) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.note(s.stats.InFlight) // it stood until now
	s.stats.InFlight--
	s.keys[key].inFlight--
}

// Answered returns when the service gave the answer that value is; the zero time if it is none of its own, or an old one.
func (s *Service) Answered(value string) time.Time {
	v, known := price.Parse(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !known || v.Backend != s.id || v.Number < 1 || v.Number > s.stats.Calls || v.Number <= s.stats.Calls-maxAnswers {
		return time.Time{}
	}
	at := s.answers[(v.Number-1)%maxAnswers]
	if at == 0 {
		return time.Time{}
	}
	return s.began.Add(at)
}

// maxAnswers are those whose times are known: 8 MB at most, and the calls of minutes, however many.
const maxAnswers = 1 << 20

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// RecentPeak returns the most callers in flight in the last 2 s. Asking changes nothing.
func (s *Service) RecentPeak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.peak(s.stats.InFlight)
}
