package redistest

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a hostile proxy in front of a Redis. What the next replies suffer is set by its methods; in between
// it passes everything on unchanged.
type Proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cuts  []string // for each: the connection whose next request contains it loses the reply
	delay time.Duration
	mute  bool
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// StartProxy starts a proxy to target, and stops it when the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// Addr returns host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// CutReply lets the server execute the next request that contains text, and cuts the connection instead of
// passing the reply on.
func (p *Proxy) CutReply(text string) { p.set(func() { p.cuts = append(p.cuts, text) }) }

// Delay delays each reply by d.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Mute keeps back all replies, or passes the next ones on again.
func (p *Proxy) Mute(mute bool) { p.set(func() { p.mute = mute }) }

// Cut cuts all connections that there are. New ones are accepted.
func (p *Proxy) Cut() {
	p.set(func() {
		for c := range p.conns {
			c.Close()
		}
	})
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.set(func() { p.conns[client], p.conns[server] = struct{}{}, struct{}{} })
	defer p.set(func() { delete(p.conns, client); delete(p.conns, server) })

	doomed := make(chan struct{}, 1)
	p.wg.Go(func() {
		defer server.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if p.takeCut(string(buffer[:n])) {
				doomed <- struct{}{}
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-doomed:
			return
		default:
		}
		p.mu.Lock()
		delay, mute := p.delay, p.mute
		p.mu.Unlock()
		time.Sleep(delay)
		if mute {
			continue
		}
		if _, err := io.Copy(client, strings.NewReader(string(buffer[:n]))); err != nil {
			return
		}
	}
}

func (p *Proxy) takeCut(request string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, text := range p.cuts {
		if strings.Contains(strings.ToUpper(request), strings.ToUpper(text)) {
			p.cuts = append(p.cuts[:i], p.cuts[i+1:]...)
			return true
		}
	}
	return false
}
