package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Listener hears the rings of other processes.
type Listener interface {
	// Listen subscribes to channel until stop is called. It returns at once; what the wakes tell is when to look. A wake that
	// nobody has taken yet stands for those that come after it.
	Listen(channel string) (wakes <-chan Wake, stop func())
}

// Wake is why a waiting flight looks.
type Wake string

// The wakes.
const (
	Confirmed Wake = "confirmed" // the subscription: rings are heard from now on
	Message   Wake = "message"   // a ring
	Reconnect Wake = "reconnect" // the subscription is confirmed anew: rings may have been missed
	Look      Wake = "look"      // none of these for a while
)

const (
	// look is how long a flight waits for a ring until it looks by itself.
	look = 500 * time.Millisecond
	// lookJitter spreads the looks, so that flights do not look in step.
	lookJitter = 0.2
)

func lookPause() time.Duration {
	return time.Duration(float64(look) * (1 + lookJitter*(2*rand.Float64()-1)))
}

// ring tells the others to look. What comes of it changes nothing here: who does not hear it looks by itself.
func (r *request) ring(ctx context.Context) {
	ctx, limited, cancel := r.paidFor(ctx)
	defer cancel()
	r.Sent.Publish++
	if err := r.Store.Publish(limited, r.lockKey); err != nil {
		r.RingsFailed++
		r.Tolerated++
		r.storeError(ctx, &r.Errors.Publish, fmt.Errorf("PUBLISH %q: %w", r.lockKey, err))
	}
}

// wake counts why a waiting flight looks.
func (r *request) wake(ctx context.Context, by Wake) {
	r.Counts.Add(WokenBy(by))
	r.Probe.Wake(ctx, by)
}

// WokenBy is one wake, counted.
func WokenBy(by Wake) (c Counts) {
	switch by {
	case Message:
		c.WokenByMessage++
	case Look:
		c.WokenByLook++
	case Reconnect:
		c.WokenByReconnect++
	}
	return c
}
