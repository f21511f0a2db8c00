package cache

import (
	"context"
	"math"
	"time"
)

// Early is XFetch (Vattani, Chiericetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, 2015,
// https://doi.org/10.14778/2757807.2757813): each Get may refresh the value before it expires, the likelier the nearer the
// expiry and the longer a fill takes. Under enough traffic somebody does so in time, and nobody misses. A cold key is filled as
// in [Fixed]. All fields must be set.
type Early struct {
	Fixed
	// Beta is how eager: above 1 values are refreshed earlier, below 1 later.
	Beta float64
	// Locked lets only one refresh at a time, under the fill lock. Without it, which is the paper's plain form, all who decide
	// so call the backend, and so do all who miss.
	Locked bool
	// Delta tells how long the fill of a value took. A value that it does not know is served, and never refreshed early.
	Delta func(value string) (delta time.Duration, known bool)
	// Random returns numbers from 0 to 1, 1 excluded.
	Random func() float64
}

// Get implements [Strategy].
func (e *Early) Get(ctx context.Context, key string) (*Result, error) {
	r := e.request(key)
	left, found, err := r.getTTL(ctx)
	switch {
	case err != nil:
		return r.done(err)
	case !found:
		return e.fillCold(ctx, r)
	case e.isDue(r.Value, left):
		e.refresh(ctx, r)
	}
	return r.done(nil)
}

func (e *Early) fillCold(ctx context.Context, r *request) (_ *Result, err error) {
	if e.Locked {
		return e.Fixed.fillCold(ctx, r)
	}
	ctx, end := r.miss(ctx)
	defer end(&err)
	return r.done(r.fill(ctx))
}

func (e *Early) isDue(value string, left time.Duration) bool {
	delta, known := e.Delta(value)
	return known && XFetch(left, delta, e.Beta, e.Random())
}

// refresh puts a newer value in the place of the one that r has. Nobody waits for it: who does not get the lock, or whose call
// fails, serves what it has.
func (e *Early) refresh(ctx context.Context, r *request) {
	if !e.Locked {
		_ = r.fill(ctx) // it is counted
		return
	}
	if won, _ := r.lock(ctx, e.Lock); won {
		_ = r.refill(ctx)
	}
	r.settle(ctx)
}

// XFetch decides whether to refresh a value that has this time left and whose fill took delta; random is from 0 to 1, 1 excluded.
// The hazard of a refresh at t before the expiry is the rate of requests times e^(-t / (beta delta)).
func XFetch(left, delta time.Duration, beta, random float64) bool {
	return -beta*float64(delta)*math.Log(1-random) >= float64(left)
}
