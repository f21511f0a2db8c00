package meeting

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"cachelab/app/fleet"
)

const (
	// maxMessage bounds one message.
	maxMessage = 16 << 20
	// maxPiece bounds an entry: longer messages go in pieces.
	maxPiece = 64 << 10
	// entryCost is what an entry takes in Redis beside its text.
	entryCost = 256
	// batch bounds one read.
	batch = 64
	// A full stream is looked at after lookAgain, and after longer and longer pauses while the other end reads nothing, which
	// it may do for unread.
	lookAgain = 5 * time.Millisecond
	lookLater = 50 * time.Millisecond
	unread    = 10 * time.Second
	// farewell is how long a line that is closed waits for the other end to read what was sent.
	farewell = time.Second
)

// Fields of a line's entries: a piece of a message, where it begins in the message, and how long that is; or the end of the line.
const (
	fieldText = "text"
	fieldAt   = "at"
	fieldOf   = "of"
	fieldEnd  = "end"
)

// Line implements [fleet.Line] with a stream for each direction. Their entries are numbered from 1, so that one that is sent
// again after a lost reply comes once, and that one that is missing is known: both are what a stream does by itself.
type Line struct {
	run     Run
	out, in string // keys
	room    int    // bytes that may lie in a stream
	life    context.Context
	end     context.CancelFunc // closes the line

	sending sync.Mutex
	sent    int   // entries
	lying   []int // bytes of those that may not be read yet, oldest first

	receiving sync.Mutex
	received  int // entries
	came      []redis.XMessage
	message   strings.Builder // its pieces so far
	ended     bool            // the other end has closed the line
}

func newLine(run Run, name, out, in string, joiners int) *Line {
	life, end := context.WithCancel(context.Background())
	return &Line{run: run, out: run.key(name, out), in: run.key(name, in), room: capacity / (2 * joiners), life: life, end: end}
}

// Send implements [fleet.Line]. After an error nobody is told anything of the message.
func (l *Line) Send(ctx context.Context, m fleet.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send the message %q: %w", m.Kind, err)
	}
	if len(text) > maxMessage {
		return fmt.Errorf("send the message %q: its %d bytes are more than a line takes, which is %d", m.Kind, len(text), maxMessage)
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	ctx, cancel := l.within(ctx)
	defer cancel()
	for at, size := 0, min(maxPiece, l.room/2); at < len(text); at += size {
		piece := text[at:min(at+size, len(text))]
		if err := l.add(ctx, fieldText, piece, fieldAt, at, fieldOf, len(text)); err != nil {
			return fmt.Errorf("send the message %q: %w", m.Kind, err)
		}
	}
	return nil
}

// within is ctx that ends with the line as well.
func (l *Line) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(net.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// add adds an entry once there is room for it.
func (l *Line) add(ctx context.Context, values ...any) error {
	size := entryCost
	if text, ok := values[1].([]byte); ok {
		size += len(text)
	}
	if err := l.awaitRoom(ctx, size); err != nil {
		return err
	}
	id, tried := fmt.Sprintf("%d-0", l.sent+1), false
	err := patiently(ctx, func() error {
		var add *redis.StringCmd
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		_, _ = l.run.Redis.Pipelined(limited, func(p redis.Pipeliner) error {
			add = p.XAdd(limited, &redis.XAddArgs{Stream: l.out, ID: id, Values: values})
			p.Expire(limited, l.out, l.run.lifetime())
			return nil
		})
		err := add.Err()
		if tried && err != nil && strings.Contains(err.Error(), "equal or smaller") {
			return nil // it was added, and only the reply was lost
		}
		tried = true
		return err
	})
	if err != nil {
		return fmt.Errorf("XADD %q: %w", l.out, err)
	}
	l.sent++
	l.lying = append(l.lying, size)
	return nil
}

// awaitRoom waits until the other end has read so much that there is room for size bytes more.
func (l *Line) awaitRoom(ctx context.Context, size int) error {
	full, left, pause := time.Now(), len(l.lying), lookAgain
	for l.load()+size > l.room {
		var n int64
		err := patiently(ctx, func() (err error) {
			limited, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			n, err = l.run.Redis.XLen(limited, l.out).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("XLEN %q: %w", l.out, err)
		}
		if int(n) < left {
			full, left, pause = time.Now(), int(n), lookAgain
			l.lying = l.lying[len(l.lying)-left:] // they are read in their order
			continue
		}
		if time.Since(full) > unread {
			return fmt.Errorf("the other end has read nothing for %v", unread)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lookLater)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *Line) load() (bytes int) {
	for _, n := range l.lying {
		bytes += n
	}
	return bytes
}

// Receive implements [fleet.Line]. That the other end's process has ended it cannot know.
func (l *Line) Receive(ctx context.Context) (fleet.Message, error) {
	l.receiving.Lock()
	defer l.receiving.Unlock()
	ctx, cancel := l.within(ctx)
	defer cancel()
	for {
		for len(l.came) > 0 {
			entry := l.came[0]
			l.came = l.came[1:]
			if want := fmt.Sprintf("%d-0", l.received+1); entry.ID != want {
				return fleet.Message{}, fmt.Errorf("%q went on with entry %s instead of %s: what was sent in between is lost, as Redis was emptied or evicts keys", l.in, entry.ID, want)
			}
			l.received++
			if m, whole, err := l.piece(entry); whole || err != nil {
				return m, err
			}
		}
		if l.ended {
			return fleet.Message{}, io.EOF
		}
		if err := l.fetch(ctx); err != nil {
			return fleet.Message{}, err
		}
	}
}

// piece takes an entry, and returns the message that it completes.
func (l *Line) piece(entry redis.XMessage) (m fleet.Message, whole bool, err error) {
	if _, l.ended = entry.Values[fieldEnd]; l.ended {
		return m, false, nil
	}
	text, _ := entry.Values[fieldText].(string)
	at, of := number(entry, fieldAt), number(entry, fieldOf)
	if at == 0 {
		l.message.Reset() // the other end gave up the one before
	}
	if at != l.message.Len() || of > maxMessage || at+len(text) > of {
		return m, false, fmt.Errorf("%q holds %d bytes for %d of %d where %d were to follow: the other end speaks otherwise", l.in, len(text), at, of, l.message.Len())
	}
	l.message.WriteString(text)
	if l.message.Len() < of {
		return m, false, nil
	}
	defer l.message.Reset()
	if err := json.Unmarshal([]byte(l.message.String()), &m); err != nil {
		return m, false, fmt.Errorf("read a message on %q: %w", l.in, err)
	}
	return m, true, nil
}

// number is -1 where there is none.
func number(entry redis.XMessage, field string) int {
	text, _ := entry.Values[field].(string)
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// fetch waits for entries, and takes them out of the stream.
func (l *Line) fetch(ctx context.Context) error {
	for len(l.came) == 0 {
		err := patiently(ctx, func() (err error) {
			l.came, err = l.run.read(ctx, l.in, fmt.Sprintf("%d-0", l.received), batch, look)
			return err
		})
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	// If it fails, the next one removes these, too.
	_ = l.run.Redis.XTrimMinID(limited, l.in, fmt.Sprintf("%d-0", l.received+len(l.came)+1)).Err()
	return nil
}

// Close implements [fleet.Line]. It waits a moment for the other end to read what was sent, and that there is no more, and
// removes both streams.
func (l *Line) Close() error {
	if l.life.Err() != nil {
		return nil
	}
	l.end()
	l.sending.Lock()
	defer l.sending.Unlock()
	l.receiving.Lock()
	defer l.receiving.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if !l.ended && l.add(ctx, fieldEnd, 1) == nil { // else nobody reads
		l.awaitReader(ctx)
	}
	ctx, cancel = context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return l.run.unlink(ctx, l.in, l.out)
}

// awaitReader waits until the other end has read all, or has removed the stream.
func (l *Line) awaitReader(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := l.run.Redis.XLen(ctx, l.out).Result(); err == nil && n == 0 {
			return
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
}
