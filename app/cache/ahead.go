package cache

import (
	"context"
	"fmt"
	"time"
)

// The steps that the strategies share which refresh a value before it expires.

// getTTL is the first GET, with PTTL. A value that never expires is somebody else's: it would be served for ever.
func (r *request) getTTL(ctx context.Context) (left time.Duration, found bool, err error) {
	r.Sent.Get++
	r.Value, left, found, err = r.Store.GetTTL(ctx, r.key)
	if err = r.got(ctx, found, err); err == nil && left < 0 {
		err = fmt.Errorf("%q never expires, so it is not this cache's: delete it, or choose another key", r.key)
	}
	r.had = found
	return left, found, err
}

// fillCold fills a key that is absent as [Fixed] does, but for the store and the release in one command.
func (f *Fixed) fillCold(ctx context.Context, r *request) (_ *Result, err error) {
	ctx, end := r.miss(ctx)
	defer end(&err)

	won, err := r.lock(ctx, f.Lock)
	if !won && err == nil {
		won, err = f.waitForFill(ctx, r)
	}
	if won {
		err = r.refill(ctx)
	}
	r.settle(ctx)
	return r.done(err)
}

// refill is the part of who holds the lock: look again, call, store and release. With an error r has the value that it had.
func (r *request) refill(ctx context.Context) error {
	newer, err := r.recheck(ctx)
	if err == nil && !newer {
		if err = r.load(ctx); err == nil {
			r.storeAndUnlock(ctx)
			return nil
		}
	}
	r.unlock(ctx)
	return err
}

// recheck is the second GET, under the lock: between the first and the lock, another may have stored a newer value, which has
// another text, as it holds its generation.
func (r *request) recheck(ctx context.Context) (newer bool, err error) {
	if !r.had {
		newer, err = r.get(ctx, Recheck)
	} else {
		old := r.Value
		found, failed := r.get(ctx, Renewal)
		if !found {
			r.Value = old
		}
		if !found && failed == nil { // it expired meanwhile
			r.Expired++
		}
		newer, err = r.Value != old, failed
	}
	if newer {
		r.Rechecked++
	}
	return newer, err
}

// successor is a request that goes on with the lock and the value of r, and counts for itself.
func (r *request) successor() *request {
	return &request{Aside: r.Aside, key: r.key, lockKey: r.lockKey, Result: Result{Value: r.Value}, had: r.had, grace: r.grace, token: r.token, lives: r.lives}
}
