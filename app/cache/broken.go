package cache

import "context"

// Broken is naive cache-aside, without coordination: whoever misses calls the backend. When a hot key expires,
// everybody misses at once, and everybody calls. That is the thundering herd.
type Broken struct{ Aside }

// Get implements [Strategy].
func (b *Broken) Get(ctx context.Context, key string) (_ *Result, err error) {
	r := b.request(key)
	if found, err := r.get(ctx, First); found || err != nil {
		return r.done(err)
	}
	ctx, end := r.miss(ctx)
	defer end(&err)

	return r.done(r.fill(ctx))
}
