package report

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxQueued is how many steps may wait for the screen; the next are left out, and counted. A herd of 50,000 fits in.
	maxQueued = 1 << 18
	// refreshEvery is how often the status line is drawn: often enough to see a fill of 250 ms.
	refreshEvery = 60 * time.Millisecond
	// chunk is about how much is written at once.
	chunk = 32 << 10
)

// printer writes to the screen, alone and in its own time: whoever prints hands it over and goes on. So a screen that
// takes nothing (Ctrl-S, a pager) holds up nothing that is measured. Make one with [newPrinter], and close it.
type printer struct {
	out    io.Writer
	width  func() int  // columns, for the status line
	failed func(error) // is told of the first write that failed

	wake chan struct{} // holds one: there is something to do
	done chan struct{}

	mu      sync.Mutex      // guards all below; never held while writing
	queue   []func() string // each is a text with its end of line
	steps   int             // of them
	leftOut *int            // steps, since the last one that was queued; nil for none
	status  func(width int) string
	closing bool

	// The printer's own.
	drawn bool  // the cursor is at the start of a status line
	err   error // of the first write that failed; there is none after it
}

func newPrinter(out io.Writer, width func() int, failed func(error)) *printer {
	p := &printer{out: out, width: width, failed: failed, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go p.run()
	return p
}

// print queues a text. It never waits.
func (p *printer) print(text string) {
	p.mu.Lock()
	p.queue = append(p.queue, func() string { return text })
	p.mu.Unlock()
	p.rouse()
}

// step queues the text of a step, which is made when its turn comes. It never waits: when very many do, it is left out.
func (p *printer) step(text func() string) {
	p.mu.Lock()
	switch {
	case p.steps < maxQueued:
		p.queue = append(p.queue, text)
		p.steps++
		p.leftOut = nil
	case p.leftOut == nil:
		n := 1
		p.leftOut = &n
		p.queue = append(p.queue, func() string { return fmt.Sprintf("(%s not shown: the screen did not keep up)\n", count(n, "step")) })
	default:
		*p.leftOut++
	}
	p.mu.Unlock()
	p.rouse()
}

// show draws a status line below what is printed, again and again; nil removes it.
func (p *printer) show(status func(width int) string) {
	p.mu.Lock()
	p.status = status
	p.mu.Unlock()
	p.rouse()
}

// close returns when all is written. The error is that of the first write that failed.
func (p *printer) close() error {
	p.mu.Lock()
	p.closing, p.status = true, nil
	p.mu.Unlock()
	p.rouse()
	<-p.done
	return p.err
}

func (p *printer) rouse() {
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

func (p *printer) run() {
	defer close(p.done)
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		queue, status, closing := p.take()
		p.draw(queue, status)
		if closing {
			return
		}
		if status == nil {
			<-p.wake
			continue
		}
		select {
		case <-p.wake:
		case <-refresh.C:
		}
	}
}

func (p *printer) take() (queue []func() string, status func(int) string, closing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue = p.queue
	p.queue, p.steps, p.leftOut = nil, 0, nil
	return queue, p.status, p.closing
}

// draw writes what is queued, and the status line below it. The cursor waits at the start of that line: wherever a
// resized terminal has put the line and wrapped it, it goes from there.
func (p *printer) draw(queue []func() string, status func(int) string) {
	var text bytes.Buffer
	if p.drawn {
		text.WriteString("\r\x1b[J") // the echo of ^C may have moved it
		p.drawn = false
	}
	for _, one := range queue {
		text.WriteString(one())
		if text.Len() > chunk {
			p.write(&text)
		}
	}
	if status != nil {
		text.WriteString(cut(status(p.width()), p.width()-1) + "\r")
		p.drawn = true
	}
	p.write(&text)
}

func (p *printer) write(text *bytes.Buffer) {
	defer text.Reset()
	if text.Len() == 0 || p.err != nil {
		return
	}
	if _, err := p.out.Write(text.Bytes()); err != nil {
		p.err = err
		p.failed(err)
	}
}
