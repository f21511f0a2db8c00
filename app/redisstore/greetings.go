package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// greetings counts the messages by which sentinels find each other. They PUBLISH them on their master, every 2 s each, so the
// master's count of PUBLISH has them in it. The count is of one connection: if that is lost, so is the count.
type greetings struct {
	pubsub  *redis.PubSub
	reading sync.WaitGroup
	pongs   chan pong
	asked   int
}

// pong is the answer to a PING, behind all messages that were published before it.
type pong struct {
	text  string
	heard int
	err   error
}

const greetingChannel = "__sentinel__:hello"

// hear returns once the server has confirmed that it will be heard.
func hear(ctx context.Context, client redis.UniversalClient) (*greetings, error) {
	g := &greetings{pubsub: client.Subscribe(ctx, greetingChannel), pongs: make(chan pong, 1)}
	if _, err := g.pubsub.ReceiveTimeout(ctx, commandTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("SUBSCRIBE %q: %w", greetingChannel, err), g.pubsub.Close())
	}
	g.reading.Go(g.read)
	return g, nil
}

func (g *greetings) read() {
	for heard := 0; ; {
		message, err := g.pubsub.Receive(context.Background())
		if err != nil {
			g.pongs <- pong{err: err}
			close(g.pongs)
			return
		}
		switch m := message.(type) {
		case *redis.Message:
			heard++
		case *redis.Pong:
			g.pongs <- pong{text: m.Payload, heard: heard}
		}
	}
}

// count returns how many were published so far.
func (g *greetings) count(ctx context.Context) (int, error) {
	g.asked++
	text := strconv.Itoa(g.asked)
	if err := g.pubsub.Ping(ctx, text); err != nil {
		return 0, err
	}
	for {
		select {
		case answer, ok := <-g.pongs:
			switch {
			case !ok:
				return 0, redis.ErrClosed
			case answer.err != nil:
				return 0, answer.err
			case answer.text == text:
				return answer.heard, nil
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (g *greetings) close() error {
	err := g.pubsub.Close()
	for range g.pongs { // to the end: the reader may have something to say
	}
	g.reading.Wait()
	return err
}
