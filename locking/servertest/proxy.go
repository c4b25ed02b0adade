// SPDX-License-Identifier: MIT

package servertest

import (
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"shop/locking/locktest"
)

// Interceptor receives the bytes of one read before they are forwarded, and may act on
// both connections. False drops the bytes. It may block, which delays this direction of
// this connection only.
type Interceptor func(bytes []byte, client, server net.Conn) (forward bool)

// Proxy forwards TCP from clients to a real server, and lets a test lose or delay a
// request or a reply, cut connections, and refuse new ones.
type Proxy struct {
	Addr string

	server  string // its address
	running sync.WaitGroup

	mu        sync.Mutex
	listener  net.Listener
	refusing  bool
	conns     map[net.Conn]bool
	onRequest Interceptor
	onReply   Interceptor
}

// NewProxy listens on a free loopback port and forwards to the server at addr. It is
// closed when the test ends.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	p := &Proxy{server: addr, conns: map[net.Conn]bool{}}
	p.listen(t, FreeAddr(t)) // Up needs the same port
	p.Addr = p.listener.Addr().String()
	t.Cleanup(p.Down)
	return p
}

// ProxyURL starts a Proxy in front of the server of a URL, and returns the URL through it.
func ProxyURL(t testing.TB, server string) (_ *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxy(t, u.Host)
	u.Host = p.Addr
	return p, u.String()
}

// OnRequest sets the interceptor of all bytes that clients send; nil forwards them.
func (p *Proxy) OnRequest(f Interceptor) { p.set(func() { p.onRequest = f }) }

// OnReply sets the interceptor of all bytes that the server sends; nil forwards them.
func (p *Proxy) OnReply(f Interceptor) { p.set(func() { p.onReply = f }) }

// Nth makes an interceptor that calls f for the nth read only, counted from 1 over all
// connections, and forwards all others. hit reports whether that read has happened.
func Nth(n int64, f Interceptor) (_ Interceptor, hit *atomic.Bool) {
	var reads atomic.Int64
	hit = &atomic.Bool{}
	return func(bytes []byte, client, server net.Conn) bool {
		if reads.Add(1) != n {
			return true
		}
		hit.Store(true)
		return f(bytes, client, server)
	}, hit
}

// Cuts are the two ways to lose a message: its request, or the reply to it.
var Cuts = map[string]Interceptor{
	"request lost": func(_ []byte, client, server net.Conn) bool {
		client.Close()
		server.Close()
		return false
	},
	"reply lost": func(_ []byte, client, _ net.Conn) bool {
		client.Close()
		return true
	},
}

// Cut closes all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.set(func() {
		for c := range p.conns {
			_ = c.Close()
		}
	})
}

// Refuse stops accepting new connections. Existing ones continue.
func (p *Proxy) Refuse() { p.set(func() { p.refusing = true; _ = p.listener.Close() }) }

// Freeze forwards nothing, while all connections stay open, until thaw is called.
func (p *Proxy) Freeze(t testing.TB) (thaw func()) {
	frozen := make(chan struct{})
	wait := func([]byte, net.Conn, net.Conn) bool { <-frozen; return true }
	p.OnRequest(wait)
	p.OnReply(wait)
	thaw = sync.OnceFunc(func() {
		p.OnRequest(nil)
		p.OnReply(nil)
		close(frozen)
	})
	t.Cleanup(thaw) // runs before Down, which waits for the blocked interceptors
	return thaw
}

// Down is Refuse and Cut, and waits until all connections are closed.
func (p *Proxy) Down() {
	p.Refuse()
	p.Cut()
	p.running.Wait()
}

// Up listens again at Addr, after Refuse or Down.
func (p *Proxy) Up(t testing.TB) {
	t.Helper()
	p.listen(t, p.Addr)
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) listen(t testing.TB, addr string) {
	t.Helper()
	// The address may have been closed a moment ago. A child of this process that has been forked, and has not called exec yet, has it open.
	var l net.Listener
	locktest.Eventually(t, addr+" is free", func() (free bool) {
		var err error
		if l, err = net.Listen("tcp", addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
		return err == nil
	})
	p.set(func() { p.listener, p.refusing = l, false })
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.connect(client)
		}
	})
}

func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	refused := false
	p.set(func() {
		if refused = p.refusing; !refused {
			p.conns[client], p.conns[server] = true, true
		}
	})
	if refused {
		_, _ = client.Close(), server.Close()
		return
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		p.copy(client, server, func(b []byte) bool { return p.pass(&p.onRequest, b, client, server) })
		_ = server.(*net.TCPConn).CloseWrite() // a reset would discard data that the server has not read yet
	})
	ends.Go(func() {
		p.copy(server, client, func(b []byte) bool { return p.pass(&p.onReply, b, client, server) })
		_ = client.Close()
	})
	p.running.Go(func() {
		ends.Wait()
		_ = server.Close()
		p.set(func() { delete(p.conns, client); delete(p.conns, server) })
	})
}

func (p *Proxy) pass(interceptor *Interceptor, b []byte, client, server net.Conn) bool {
	var f Interceptor
	p.set(func() { f = *interceptor })
	return f == nil || f(b, client, server)
}

// copy forwards until from is closed. It continues when to is closed, so that a server
// can finish the request of a client that has left.
func (p *Proxy) copy(from, to net.Conn, pass func([]byte) bool) {
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if n > 0 && pass(buf[:n]) {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}
