package backend

import "time"

// A recent peak is the highest of the last 2 s, which no push of the metrics, one a second, can miss. It is kept as the
// maxima of tenths of a second.
const (
	peakTick  = 100 * time.Millisecond
	peakTicks = int(2 * time.Second / peakTick)
)

type recentPeak struct {
	began time.Time
	ring  [peakTicks + 1]tickMaximum // the tick that has begun, and those of 2 s before it
}

// tickMaximum is the highest level noted in a tick, which is counted from the beginning.
type tickMaximum struct{ tick, level int }

func newRecentPeak() recentPeak { return recentPeak{began: time.Now()} }

func (p *recentPeak) now() int { return int(time.Since(p.began) / peakTick) }

// note is told of a level when it is reached, and again when it is left: between the two nothing changes.
func (p *recentPeak) note(level int) {
	tick := p.now()
	slot := &p.ring[tick%len(p.ring)]
	if slot.tick != tick {
		*slot = tickMaximum{tick: tick}
	}
	slot.level = max(slot.level, level)
}

// peak returns the highest level of the last 2 s; standing is the present one.
func (p *recentPeak) peak(standing int) int {
	now := p.now()
	for _, slot := range p.ring {
		if slot.tick >= now-peakTicks {
			standing = max(standing, slot.level)
		}
	}
	return standing
}
