package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/cache"
)

const (
	// listenIdle is how long a subscription is kept that nobody waits for: the next expiry finds it there.
	listenIdle = 10 * time.Second
	// relisten is the pause after a lost connection that could not be made anew.
	relisten = 100 * time.Millisecond
)

// listener implements cache.Listener with one connection, made when somebody listens. go-redis connects again and subscribes
// again by itself; that its Subscribe returned says only that the command was written.
type listener struct {
	client *nodes

	mu       sync.Mutex // guards all below
	pubsub   *redis.PubSub
	channels map[string]*subscription
	reading  sync.WaitGroup
}

// subscription is a channel that somebody waits for, or did a while ago.
type subscription struct {
	ears      map[chan cache.Wake]struct{}
	confirmed bool
	lost      bool // it was confirmed, and the connection was lost since
	idle      *time.Timer
}

func newListener(client *nodes) *listener {
	return &listener{client: client, channels: map[string]*subscription{}}
}

// Listen implements cache.Listener.
func (l *listener) Listen(channel string) (<-chan cache.Wake, func()) {
	ear := make(chan cache.Wake, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.channels[channel]
	if s == nil {
		s = &subscription{ears: map[chan cache.Wake]struct{}{}}
		l.channels[channel] = s
		l.subscribe(channel)
	} else if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	s.ears[ear] = struct{}{}
	if s.confirmed {
		wake(ear, cache.Confirmed)
	}
	return ear, func() { l.stop(channel, s, ear) }
}

// subscribe sends SUBSCRIBE. If it fails, the reader connects again, and subscribes to all that there is.
func (l *listener) subscribe(channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if l.pubsub == nil {
		l.pubsub = l.client.Subscribe(ctx)
		pubsub := l.pubsub
		l.reading.Go(func() { l.read(pubsub) })
	}
	_ = l.pubsub.Subscribe(ctx, channel)
}

func (l *listener) stop(channel string, s *subscription, ear chan cache.Wake) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(s.ears, ear)
	if len(s.ears) == 0 && l.channels[channel] == s {
		s.idle = time.AfterFunc(listenIdle, func() { l.leave(channel, s) })
	}
}

// leave ends a subscription that nobody waits for, and the connection with the last.
func (l *listener) leave(channel string, s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(s.ears) > 0 || l.channels[channel] != s {
		return
	}
	delete(l.channels, channel)
	if len(l.channels) == 0 {
		_ = l.hangUp()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	_ = l.pubsub.Unsubscribe(ctx, channel)
}

// hangUp closes the connection, if there is one. The caller holds the mutex.
func (l *listener) hangUp() (err error) {
	if l.pubsub != nil {
		err = l.pubsub.Close()
		l.pubsub = nil
	}
	return err
}

func (l *listener) read(pubsub *redis.PubSub) {
	for {
		message, err := pubsub.Receive(context.Background())
		l.mu.Lock()
		if l.pubsub != pubsub {
			l.mu.Unlock()
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if s := l.channels[m.Channel]; s != nil && m.Kind == "subscribe" {
				s.confirm()
			}
		case *redis.Message:
			if s := l.channels[m.Channel]; s != nil {
				s.wake(cache.Message)
			}
		}
		if err != nil && !isAnswer(err) {
			for _, s := range l.channels {
				s.lost, s.confirmed = s.lost || s.confirmed, false
			}
		}
		l.mu.Unlock()
		if err != nil {
			l.client.lookAround(context.Background()) // another node may have the channel by now
			time.Sleep(relisten)
		}
	}
}

// confirm says that rings are heard from now on.
func (s *subscription) confirm() {
	by := cache.Confirmed
	if s.lost {
		by = cache.Reconnect
	}
	s.confirmed, s.lost = true, false
	s.wake(by)
}

func (s *subscription) wake(by cache.Wake) {
	for ear := range s.ears {
		wake(ear, by)
	}
}

func wake(ear chan cache.Wake, by cache.Wake) {
	select {
	case ear <- by:
	default: // it is awake already
	}
}

// close hangs up for good.
func (l *listener) close() error {
	l.mu.Lock()
	for channel, s := range l.channels {
		if s.idle != nil {
			s.idle.Stop()
		}
		delete(l.channels, channel)
	}
	err := l.hangUp()
	l.mu.Unlock()
	l.reading.Wait()
	return err
}
