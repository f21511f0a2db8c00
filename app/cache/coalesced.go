package cache

import (
	"context"
	"time"
)

// Coalesced is cache-aside in which the callers of one key in one process share one flight: GET; on a miss, call and SET. There
// is no lock: each process calls once. All fields must be set.
type Coalesced struct {
	Aside
	Flights Flights
	// Limit bounds a flight, which does not end with its callers.
	Limit time.Duration
}

// Get implements [Strategy].
func (c *Coalesced) Get(ctx context.Context, key string) (*Result, error) {
	return c.Flights.share(ctx, &c.Aside, key, c.Limit, c)
}

func (c *Coalesced) fly(ctx context.Context, r *request) (err error) {
	if found, err := r.get(ctx, First); found || err != nil {
		return err
	}
	ctx, end := r.miss(ctx)
	defer end(&err)

	return r.fill(ctx)
}
