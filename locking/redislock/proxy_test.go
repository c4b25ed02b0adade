package redislock

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between a client and a real server and disturbs the line. It
// only ever acts on scripts, so that a connection can always be made.
type proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	lose  int           // answers still to lose
	lost  int           // answers lost so far
	drop  int           // requests still to lose on their way to the server
	reset bool          // lose an answer by closing the connection, not by silence
	delay time.Duration // of each answer
	cut   bool          // no connection is let through
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.closeConns()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *proxy) loseNext(n int)            { p.set(func(p *proxy) { p.lose = n }) }
func (p *proxy) delayEach(d time.Duration) { p.set(func(p *proxy) { p.delay = d }) }
func (p *proxy) lostSoFar() (n int)        { p.set(func(p *proxy) { n = p.lost }); return n }
func (p *proxy) closeConns()               { p.set(func(p *proxy) { closeAll(p.conns) }) }
func (p *proxy) cutOff()                   { p.set(func(p *proxy) { p.cut = true; closeAll(p.conns) }) }

func (p *proxy) state() (lose, reset bool, delay time.Duration) {
	p.set(func(p *proxy) { lose, reset, delay = p.lose > 0, p.reset, p.delay })
	return lose, reset, delay
}

// dropped tells whether request is one to lose.
func (p *proxy) dropped(request []byte) (yes bool) {
	p.set(func(p *proxy) {
		if yes = p.drop > 0 && bytes.Contains(request, []byte("eval")); yes {
			p.drop--
		}
	})
	return yes
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		if p.cut {
			closeAll(p.conns)
		}
		p.mu.Unlock()
		p.join(client, server)
	}
}

// join carries requests and answers of one connection, until either end closes.
func (p *proxy) join(client, server net.Conn) {
	var mu sync.Mutex
	doomed := false // the answer to the request under way is to be lost
	end := func() { closeAll([]net.Conn{client, server}) }
	p.work.Go(func() {
		defer end()
		carry(client, server, func(request []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if p.dropped(request) {
				return false
			}
			if lose, _, _ := p.state(); lose && bytes.Contains(request, []byte("eval")) {
				doomed = true
				p.set(func(p *proxy) { p.lose-- })
			}
			return true
		})
	})
	p.work.Go(func() {
		defer end()
		carry(server, client, func([]byte) bool {
			mu.Lock()
			lost := doomed
			mu.Unlock()
			_, reset, delay := p.state()
			if !lost {
				<-time.After(delay)
				return true
			}
			p.set(func(p *proxy) { p.lost++ })
			if reset {
				end()
			}
			return false
		})
	})
}

// carry copies what pass lets through.
func carry(from io.Reader, to io.Writer, pass func([]byte) bool) {
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !pass(buffer[:n]) {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
