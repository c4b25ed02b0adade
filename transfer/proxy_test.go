package transfer_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a pool and PostgreSQL, forwards, and once it is armed
// does something else with the next bytes that a client, or the server, sends.
type proxy struct {
	url      string
	addr     string
	upstream string

	mu       sync.Mutex
	listener net.Listener
	fault    fault
	answer   fault
	silent   bool // carries nothing any more, and tells neither end
	syncs    int  // round trips: how often a client asked for an answer
	conns    []net.Conn
	wg       sync.WaitGroup
}

// fault gets the bytes of one end and both ends, instead of the other.
type fault func(bytes []byte, client, server net.Conn)

// newProxy listens in front of the server of databaseURL.
func newProxy(t testing.TB, databaseURL string) *proxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{upstream: u.Host}
	p.listen(t, "127.0.0.1:0")
	p.addr = p.listener.Addr().String()
	u.Host = p.addr
	p.url = u.String()
	t.Cleanup(p.down)
	return p
}

func (p *proxy) listen(t testing.TB, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(client)
		}
	})
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	p.wg.Go(func() { p.back(client, server) })
	p.wg.Go(func() { p.forward(client, server) })
}

// back passes the server's bytes on, to the end, also when the client is gone.
func (p *proxy) back(client, server net.Conn) {
	defer func() {
		if !p.isSilent() { // a stopped server closes nothing
			client.Close()
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		fault := p.answer
		p.answer = nil
		p.mu.Unlock()
		if p.isSilent() {
			continue
		}
		if fault != nil {
			fault(buf[:n], client, server)
			continue
		}
		_, _ = client.Write(buf[:n])
	}
}

// forward passes the client's bytes on, and counts the Sync messages ('S', length 4).
func (p *proxy) forward(client, server net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return
		}
		p.mu.Lock()
		fault, silent := p.fault, p.silent
		p.fault = nil
		if n >= 5 && string(buf[n-5:n]) == "S\x00\x00\x00\x04" {
			p.syncs++
		}
		p.mu.Unlock()
		if silent {
			continue
		}
		if fault != nil {
			fault(buf[:n], client, server)
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// arm sets what happens to the next bytes of a client.
func (p *proxy) arm(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// armAnswer sets what happens to the next bytes of the server.
func (p *proxy) armAnswer(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// hush makes the server look like one that is stopped: connections are taken, and nothing is answered.
func (p *proxy) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

func (p *proxy) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

func (p *proxy) roundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.syncs
}

// refuse takes no new connections.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
}

// down refuses and cuts everything, and waits for it.
func (p *proxy) down() {
	p.refuse()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// up listens again where it did.
func (p *proxy) up(t testing.TB) {
	t.Helper()
	p.listen(t, p.addr)
}

// cutBefore loses the request.
func cutBefore(_ []byte, client, server net.Conn) {
	client.Close()
	server.Close()
}

// cutAfter delivers the request, and loses the answer.
func cutAfter(request []byte, client, server net.Conn) {
	client.Close()
	_, _ = server.Write(request)
}

// cutAndDeliverLate loses the client at once, and delivers its request when ready says so.
func cutAndDeliverLate(ready <-chan struct{}) fault {
	return func(request []byte, client, server net.Conn) {
		client.Close()
		<-ready
		_, _ = server.Write(request)
	}
}
