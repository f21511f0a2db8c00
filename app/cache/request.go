package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// LockKey is how the fill lock of key is usually called.
func LockKey(key string) string { return key + ":filling" }

// Bounds of the steps, in one place.
const (
	// releaseTimeout usually bounds the SET and the release of a lock, which do not end with the caller's context.
	// A command may take a second until it is given up, so this leaves time to try again.
	releaseTimeout = 3 * time.Second
	// maxStoreErrors is the store error that fails a waiter, or a release; the ones before are tolerated.
	// One lost reply must not fail whoever waits; a store that is down must, and soon. The first GET and the
	// re-check are not repeated: the caller may.
	maxStoreErrors = 3
	// clockSlack is how much the store's clock may be off within a TTL.
	clockSlack = 10 * time.Millisecond
)

// Aside is what every cache-aside strategy works with.
type Aside struct {
	Store   Store
	Backend Loader
	Probe   Probe
	// TTL is how long a value is cached, TTLJitter the fraction (0 to 1) by which each fill spreads it to
	// both sides, so that keys written together do not expire together.
	TTL       time.Duration
	TTLJitter float64
	// LockKey names the fill lock of a key; nil: [LockKey].
	LockKey func(key string) string
	// Passage is how much longer than usual a SET and a release may take, in a herd so large that they wait for the
	// processor.
	Passage time.Duration
}

// request is one Get on its way: the steps it can take, and the facts it collects.
type request struct {
	*Aside
	key     string
	lockKey string // the fill lock's name
	Result

	token    string    // of the latest lock attempt
	lives    time.Time // until when that lock lives at least, if it is ours
	holder   string    // token found in the lock
	unsure   bool      // the reply to the lock attempt was lost: the lock may be ours
	answered time.Time // when the latest lock attempt was answered
	failures int       // store errors tolerated so far
	had      bool      // the first GET found a value: only another one makes a backend call needless
	grace    time.Duration
	flight   *flight // whose work this is; nil for that of one caller
	sent     bool    // a release whose reply was lost: the lock may be gone by it
}

func (a *Aside) request(key string) *request {
	lockKey := LockKey
	if a.LockKey != nil {
		lockKey = a.LockKey
	}
	return &request{Aside: a, key: key, lockKey: lockKey(key)}
}

// done ends the request.
func (r *request) done(err error) (*Result, error) {
	switch {
	case err != nil:
		r.Outcome = Failed
	case r.BackendCalls > 0:
		r.Outcome = Filled
	case r.Misses > 0 && (r.Held > 0 || r.Polls > 0):
		r.Outcome = Waited
	default:
		r.Outcome = Hit
	}
	return &r.Result, err
}

// miss begins a stretch. Its end is deferred, with the address of the error that the caller returns.
func (r *request) miss(ctx context.Context) (context.Context, func(*error)) {
	ctx, end := r.Probe.Miss(ctx, r.key)
	if r.flight != nil {
		r.flight.missed(r.Probe, ctx)
	}
	return ctx, func(err *error) { end(r.done(*err)) }
}

// wait does, too.
func (r *request) wait(ctx context.Context) (context.Context, func(*error)) {
	ctx, end := r.Probe.Wait(ctx, r.holder)
	started := time.Now()
	return ctx, func(err *error) {
		r.Waited = time.Since(started)
		end(&r.Result, *err)
	}
}

// get is GET.
func (r *request) get(ctx context.Context, why Read) (found bool, err error) {
	r.Sent.Get++
	r.Value, found, err = r.Store.Get(context.WithValue(ctx, readKey{}, why), r.key)
	err = r.got(ctx, found, err)
	return found && err == nil, err
}

// got counts the reply to a GET.
func (r *request) got(ctx context.Context, found bool, err error) error {
	switch {
	case err != nil:
		err = fmt.Errorf("GET %q: %w", r.key, err)
		r.storeError(ctx, &r.Errors.Get, err)
		return err
	case found:
		r.Hits++
	default:
		r.Misses++
	}
	return nil
}

// poll is a waiter's GET.
func (r *request) poll(ctx context.Context) (found bool, err error) {
	r.Polls++
	found, err = r.get(ctx, Poll)
	return found, r.tolerate(ctx, err)
}

// lock is SET NX PX. After a lost reply it asks again with the same token, and so finds out.
func (r *request) lock(ctx context.Context, l FillLock) (won bool, err error) {
	if !r.unsure {
		r.token = l.NewToken(ctx)
	}
	r.Sent.Lock++
	r.lives = time.Now().Add(l.TTL)
	r.holder, err = r.Store.Lock(ctx, r.lockKey, r.token, l.TTL)
	r.unsure = err != nil
	if err != nil {
		err = fmt.Errorf("SET NX PX %q: %w", r.lockKey, err)
		r.storeError(ctx, &r.Errors.Lock, err)
		return false, r.tolerate(ctx, err)
	}
	r.answered = time.Now()
	if r.holder != r.token {
		r.Held++
		return false, nil
	}
	r.Acquired++
	return true, nil
}

// settle gives back a lock that may be ours: the last attempt was never answered.
func (r *request) settle(ctx context.Context) {
	if r.unsure {
		r.unlock(ctx)
	}
}

// lockAnswerAge is the age of what the request knows about the lock.
func (r *request) lockAnswerAge() time.Duration { return time.Since(r.answered) }

// storeError counts and keeps the error of a command, unless it is the caller who left.
func (r *request) storeError(ctx context.Context, latest *error, err error) {
	if ctx.Err() == nil {
		r.StoreErrors++
		*latest = err
	}
}

// tolerate turns the first store errors into nil.
func (r *request) tolerate(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if r.failures++; r.failures < maxStoreErrors {
		r.Tolerated++
		return nil
	}
	return err
}

// fill is the backend call and SET. If SET fails the caller still gets its value.
func (r *request) fill(ctx context.Context) error {
	if err := r.load(ctx); err != nil {
		return err
	}
	ctx, limited, cancel := r.paidFor(ctx)
	defer cancel()
	r.Sent.Set++
	_, found, err := r.Store.Set(limited, r.key, r.Value, r.ttl())
	r.stored(ctx, found, err, "SET")
	return nil
}

// load is the backend call.
func (r *request) load(ctx context.Context) error {
	r.BackendCalls++
	value, err := r.safelyLoad(ctx)
	if err != nil {
		r.BackendErrors++
		r.Errors.Load = fmt.Errorf("backend call for %q: %w", r.key, err)
		return r.Errors.Load
	}
	r.Value, r.Loaded = value, time.Now()
	return nil
}

// safelyLoad makes an error of a panic, which holds the stack: whoever waits must hear of it, and the lock be given back.
func (r *request) safelyLoad(ctx context.Context) (value string, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	return r.Backend.Load(ctx, r.key)
}

// storeAndUnlock stores the loaded value and gives the lock back, in one command. If it fails the caller still gets its
// value, and the lock is given back alone.
func (r *request) storeAndUnlock(ctx context.Context) {
	ctx, limited, cancel := r.paidFor(ctx)
	defer cancel()
	r.Sent.StoreAndUnlock++
	s, err := r.Store.StoreAndUnlock(limited, r.key, r.Value, r.ttl(), r.lockKey, r.token)
	if err == nil && !s.Stored {
		r.SetsLate++
	} else {
		r.stored(ctx, s.Found, err, "SET, DEL")
	}
	if err != nil {
		r.sent = !errors.Is(err, ErrRefused)
		r.unlock(ctx)
		return
	}
	r.released(s.Released)
}

// paidFor returns the context of what follows a backend call: a caller that leaves now does not keep the value, or the lock,
// from the others. It keeps ctx's values and drops its end; the limited one has an end of its own.
func (r *request) paidFor(ctx context.Context) (lasting, limited context.Context, cancel context.CancelFunc) {
	lasting = context.WithoutCancel(ctx)
	limited, cancel = context.WithTimeout(lasting, releaseTimeout+r.Passage)
	return lasting, limited, cancel
}

// stored counts what became of a fill.
func (r *request) stored(ctx context.Context, found bool, err error, command string) {
	switch {
	case errors.Is(err, ErrRefused):
		r.SetsRefused++
	case err != nil:
		r.SetsUnanswered++
	case found:
		r.SetsReplaced++
	default:
		r.SetsAbsent++
	}
	if err != nil {
		r.storeError(ctx, &r.Errors.Set, fmt.Errorf("%s %q: %w", command, r.key, err))
	}
}

func (r *request) ttl() time.Duration {
	spread := 1 + r.TTLJitter*(2*rand.Float64()-1)
	return max(time.Millisecond, time.Duration(float64(r.TTL)*spread)) + r.grace
}

// unlock is the owner-safe DEL. It keeps the context's values and drops its end: a cancelled request still
// gives its lock back. A release that is sent again because its reply was lost finds nothing to delete; that
// is the first one's doing and no lost lock.
func (r *request) unlock(ctx context.Context) {
	ctx, limited, cancel := r.paidFor(ctx)
	defer cancel()

	for failures := range maxStoreErrors {
		r.Sent.Unlock++
		released, err := r.Store.Unlock(limited, r.lockKey, r.token)
		if err != nil {
			r.storeError(ctx, &r.Errors.Unlock, fmt.Errorf("DEL %q: %w", r.lockKey, err))
		}
		switch {
		case errors.Is(err, ErrRefused): // and so would be the next try
			if !r.unsure {
				r.ReleasesRefused++
			}
			return
		case err != nil:
			continue
		case r.unsure && !released: // it was not ours, or nobody knows
		case r.unsure:
			r.Acquired++
			r.Released++
		default:
			r.released(released || r.sent || failures > 0)
		}
		r.Tolerated += failures
		return
	}
	if !r.unsure {
		r.ReleasesUnanswered++
	}
}

// released counts how a lock was given back.
func (r *request) released(ours bool) {
	if ours {
		r.Released++
		return
	}
	r.Lost++
	if time.Now().Before(r.lives.Add(-clockSlack)) {
		r.LostEarly++
	}
}
