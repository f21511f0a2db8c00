package cache

import (
	"context"
	"time"
)

// Stale serves a value that is past its TTL while it is refreshed: the store keeps it for the TTL and a grace time. Past the TTL
// whoever gets the fill lock refreshes the value in the background; all are served the old one, and nobody waits. A key that is
// absent, at first or after a grace time without requests, is filled as in [Fixed]. All fields must be set.
type Stale struct {
	Fixed
	// Grace should be longer than the lock's TTL and a fill, or all wait for the successor of a refresh that died.
	Grace time.Duration
	// Delta tells how long the fill of a value took. A value that it does not know is served, and never refreshed early.
	Delta func(value string) (delta time.Duration, known bool)
}

// Get implements [Strategy]. A refresh that it begins goes on after it: [Probe.Refresh] tells when it ends.
func (s *Stale) Get(ctx context.Context, key string) (*Result, error) {
	r := s.request(key)
	r.grace = s.Grace
	left, found, err := r.getTTL(ctx)
	switch {
	case err != nil:
		return r.done(err)
	case !found:
		return s.fillCold(ctx, r)
	case left < s.Grace && s.isOurs(r.Value):
		if won, _ := r.lock(ctx, s.Lock); won {
			s.refresh(ctx, r.successor())
		}
		r.settle(ctx)
	}
	return r.done(nil)
}

func (s *Stale) isOurs(value string) bool {
	_, known := s.Delta(value)
	return known
}

// refresh puts a newer value in the place of r's, in the background. It outlives the request that began it, and is bounded as a
// waiter is.
func (s *Stale) refresh(ctx context.Context, r *request) {
	ctx, end := r.Probe.Refresh(context.WithoutCancel(ctx), r.key)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, s.WaitTimeout)
		defer cancel()
		end(r.done(r.refill(ctx)))
	}()
}
