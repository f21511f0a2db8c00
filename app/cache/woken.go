package cache

import (
	"context"
	"time"
)

// Woken is cache-aside in which the callers of one key in one process share one flight, and the flights of all processes the
// fill lock. The winner rings when it has stored and released, and waiting flights listen instead of polling. The ring is only a
// hint, the GET after it decides: without it flights look by themselves, now and then. All fields must be set.
type Woken struct {
	Aside
	Flights  Flights
	Listener Listener
	Lock     FillLock
	// WaitTimeout is a waiting flight's limit. It must be longer than the lock's TTL.
	WaitTimeout time.Duration
}

// Get implements [Strategy].
func (w *Woken) Get(ctx context.Context, key string) (*Result, error) {
	return w.Flights.share(ctx, &w.Aside, key, w.WaitTimeout+2*w.Lock.TTL, w) // a wait, and a fill that is late
}

func (w *Woken) fly(ctx context.Context, r *request) (err error) {
	if found, err := r.get(ctx, First); found || err != nil {
		return err
	}
	ctx, end := r.miss(ctx)
	defer end(&err)

	won, err := r.lock(ctx, w.Lock)
	if !won && err == nil {
		won, err = w.waitForRing(ctx, r)
	}
	if won {
		err = r.refill(ctx)
		r.flight.land(r.done(err)) // the callers in this process need no ring
		r.ring(ctx)
	}
	r.settle(ctx)
	return err
}

// waitForRing is the part of a flight that lost the lock. It looks when the subscription is confirmed, as the winner may have
// rung before, and with each ring. A look that finds neither the value nor another's lock takes over.
func (w *Woken) waitForRing(ctx context.Context, r *request) (won bool, err error) {
	ctx, end := r.wait(ctx)
	defer end(&err)
	wakes, stop := w.Listener.Listen(r.lockKey)
	defer stop()

	limit := time.After(w.WaitTimeout)
	for {
		var by Wake
		select {
		case by = <-wakes:
		case <-time.After(lookPause()):
			by = Look
		case <-limit:
			r.Timeouts++
			return false, ErrWaitTimeout
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		r.wake(ctx, by)
		if found, err := r.poll(ctx); found || err != nil {
			return false, err
		}
		if won, err := r.lock(ctx, w.Lock); won || err != nil {
			return won, err
		}
	}
}
