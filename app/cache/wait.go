package cache

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// How a waiter waits. Short pauses cost commands, long ones cost time after the fill. These were measured with
// 50 and 500 waiters on a 250 ms fill ("make bench"): the value is seen within 50 ms at under 12 commands a
// request.
const (
	firstPause = 15 * time.Millisecond // 11 to 19 ms with the jitter
	pauseGrows = 1.5
	pauseTop   = 40 * time.Millisecond // 30 to 50 ms
	lateTop    = 80 * time.Millisecond // 60 to 100 ms, from lateAfter on
	lateAfter  = time.Second
	// pauseJitter spreads the waiters: without it they would all read in step.
	pauseJitter = 0.25
	// lockRetry is how old a waiter's last lock attempt must be before it tries again. A poll that misses
	// while the lock is free means that the winner failed; this, and a pause, is what that costs at most.
	lockRetry = 100 * time.Millisecond
)

// pauses are the pauses of one waiter.
type pauses struct {
	backoff *backoff.ExponentialBackOff
	started time.Time
}

func newPauses() *pauses {
	return &pauses{
		backoff: &backoff.ExponentialBackOff{
			InitialInterval:     firstPause,
			RandomizationFactor: pauseJitter,
			Multiplier:          pauseGrows,
			MaxInterval:         pauseTop,
		},
		started: time.Now(),
	}
}

func (p *pauses) next() time.Duration {
	if p.elapsed() >= lateAfter {
		p.backoff.MaxInterval = lateTop
	}
	return p.backoff.NextBackOff()
}

func (p *pauses) elapsed() time.Duration { return time.Since(p.started) }

// Sleep pauses for d. It returns the reason if ctx has ended by then.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// RandomToken returns 128 random bits as text. Any constant would let a late winner release the lock of the
// next one.
func RandomToken(context.Context) string { return rand.Text() }
