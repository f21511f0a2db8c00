package lab

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keeper's key expires after a time of its own.
type keeper time.Duration

func (k keeper) AwaitExpiry(ctx context.Context, _ string) error {
	select {
	case <-time.After(time.Duration(k)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestAKeyIsWaitedForWithinALimit(t *testing.T) {
	const ttl = 3 * time.Second
	for _, test := range []struct {
		name  string
		lives time.Duration
		said  int
		took  time.Duration
		err   string
	}{
		{"its TTL", ttl, 0, ttl, ""},
		{"a little longer", ttl + lateness - time.Millisecond, 0, ttl + lateness - time.Millisecond, ""},
		{"longer", 5 * time.Second, 1, 5 * time.Second, ""},
		{"for ever", 1000 * time.Hour, 1, 21 * time.Second, "it did not expire in 21s, and the lab gave it no more than 3s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				var said []string
				p := patience{keeper: keeper(test.lives), ttl: ttl, say: func(line string) { said = append(said, line) },
					ttlOf: func(context.Context, string) (time.Duration, error) { return test.lives - time.Since(started), nil }}
				err := p.AwaitExpiry(t.Context(), "key")
				if took := time.Since(started); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if len(said) != test.said {
					t.Errorf("said %q", said)
				}
				if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %s", err, test.err)
				}
			})
		})
	}
	t.Run("an interrupt is no fault of the key's", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted")
		cancel(interrupted)
		p := patience{keeper: keeper(time.Hour), ttl: ttl}
		if err := p.AwaitExpiry(ctx, "key"); err != interrupted {
			t.Errorf("got %v", err)
		}
	})
}
