package cache

import (
	"context"
	"time"
)

// Fixed is cache-aside with a fill lock: whoever misses tries to take a short lock beside the key. One worker
// wins and fills; the others wait and read again. Nobody calls the backend without the lock.
//
// The lock protects the recomputation of a value, not its correctness: a winner that takes longer than the
// lock lives is overtaken by the next, and may still store its older value. All fields must be set.
type Fixed struct {
	Aside
	Lock FillLock
	// WaitTimeout is a waiter's limit. It must be longer than the lock's TTL, or a dead winner takes its
	// waiters along.
	WaitTimeout time.Duration
}

// FillLock says how to take the lock of a fill.
type FillLock struct {
	// TTL must be longer than a fill: after it, the next waiter takes over.
	TTL time.Duration
	// NewToken makes the lock's value, unique to each attempt: [RandomToken], or more than that.
	NewToken func(ctx context.Context) string
}

// Get implements [Strategy].
func (f *Fixed) Get(ctx context.Context, key string) (_ *Result, err error) {
	r := f.request(key)
	if found, err := r.get(ctx, First); found || err != nil {
		return r.done(err)
	}
	ctx, end := r.miss(ctx)
	defer end(&err)

	won, err := r.lock(ctx, f.Lock)
	if !won && err == nil {
		won, err = f.waitForFill(ctx, r)
	}
	if won {
		err = f.fillUnderLock(ctx, r)
	}
	r.settle(ctx)
	return r.done(err)
}

// fillUnderLock is the winner's part.
func (f *Fixed) fillUnderLock(ctx context.Context, r *request) error {
	defer r.unlock(ctx)

	// Between our miss and our lock, another winner may have come and gone: look again before the call.
	found, err := r.get(ctx, Recheck)
	if found {
		r.Rechecked++
	}
	if found || err != nil {
		return err
	}
	return r.fill(ctx)
}

// waitForFill is the others' part. It ends with the value, with the lock (won) when the winner left without
// filling, or with an error.
func (f *Fixed) waitForFill(ctx context.Context, r *request) (won bool, err error) {
	ctx, end := r.wait(ctx)
	defer end(&err)

	for pauses := newPauses(); ; {
		if err := Sleep(ctx, pauses.next()); err != nil {
			return false, err
		}
		if found, err := r.poll(ctx); found || err != nil {
			return false, err
		}
		if r.lockAnswerAge() >= lockRetry {
			if won, err := r.lock(ctx, f.Lock); won || err != nil {
				return won, err
			}
		}
		if pauses.elapsed() >= f.WaitTimeout {
			r.Timeouts++
			return false, ErrWaitTimeout
		}
	}
}
