package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// trialTTL is how long what a preflight stores would live if it were not removed.
const trialTTL = time.Second

// ErrLocked says that another process holds the fill lock.
var ErrLocked = errors.New("the fill lock is held")

// Trial says what a preflight tries.
type Trial struct {
	Key   string // must be forgotten
	Value string // is stored there for a moment
	Lock  string // must be free; "" where no strategy locks
	// InOneCommand says that a strategy stores the value and gives the lock back in one command.
	InOneCommand bool
}

// Preflight sends each command that the strategies send, once, on the real keys: a user may have rights on just these
// two. What it stores is removed again. It goes by the housekeeping's connection and comes before the first census, so
// nobody counts it. The error is a [*Refusal], or [ErrLocked] if another process has taken the lock: its fill must not be
// disturbed.
func (r *Redis) Preflight(ctx context.Context, t Trial) (err error) {
	key, lockKey, value := t.Key, t.Lock, t.Value
	ending := context.WithoutCancel(ctx)
	store := NewStore(r.keeper)
	token := "preflight-" + r.options.Name
	if _, _, _, err := store.GetTTL(ctx, key); err != nil {
		return r.refused(ctx, fmt.Sprintf("GET and PTTL %q", key), err)
	}
	if lockKey != "" {
		switch holder, err := store.Lock(ctx, lockKey, token, trialTTL); {
		case err != nil:
			return r.refused(ctx, fmt.Sprintf("SET %q NX GET PX", lockKey), err)
		case holder != token:
			return ErrLocked
		}
		defer func() {
			_, unlockErr := store.Unlock(ending, lockKey, token)
			if unlockErr == nil {
				return
			}
			if err == nil {
				err = r.refused(ctx, fmt.Sprintf("EVAL (compare and delete %q)", lockKey), unlockErr)
			}
			if holder, getErr := r.keeper.Get(ending, lockKey).Result(); getErr == nil && holder == token {
				_ = r.keeper.Del(ending, lockKey).Err() // else it ends with its TTL
			}
		}()
	}
	defer func() { // what must not fail: it worked when the key was forgotten
		if delErr := r.keeper.Del(ending, key).Err(); err == nil {
			err = r.refused(ctx, fmt.Sprintf("DEL %q", key), delErr)
		}
	}()
	if _, _, err = store.Set(ctx, key, value, trialTTL); err != nil {
		return r.refused(ctx, fmt.Sprintf("SET %q GET PX", key), err)
	}
	if !t.InOneCommand {
		return nil
	}
	// Each of the two ways through the script: with a lock that is not ours the key is asked for, and is there.
	_, err = store.StoreAndUnlock(ctx, key, value, trialTTL, lockKey, "not "+r.options.Name)
	if err == nil {
		_, err = store.StoreAndUnlock(ctx, key, value, trialTTL, lockKey, token)
	}
	return r.refused(ctx, fmt.Sprintf("EVAL (store %q and delete %q)", key, lockKey), err)
}

// TryRing sends what a winner and those who wait send on a channel. What is refused costs them time and no more, so the
// error, a [*Refusal], is for a warning.
func (r *Redis) TryRing(ctx context.Context, channel string) error {
	if err := NewStore(r.keeper).Publish(ctx, channel); err != nil {
		return r.refused(ctx, fmt.Sprintf("PUBLISH %q", channel), err)
	}
	heard := r.keeper.Subscribe(ctx, channel)
	_, err := heard.ReceiveTimeout(ctx, commandTimeout)
	return r.refused(ctx, fmt.Sprintf("SUBSCRIBE %q", channel), errors.Join(err, heard.Close()))
}
