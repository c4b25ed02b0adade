package etcdlock

import (
	"net"
	"sync"
	"testing"
)

// cable is a TCP connection from a client to etcd that can be cut, or stop to
// carry anything in either direction without a word.
type cable struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond
	conns  []net.Conn
	frozen bool
	cut    bool
}

func newCable(t testing.TB, target string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener, target: target}
	c.moved = sync.NewCond(&c.mu)
	c.work.Go(c.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		c.set(func() { c.frozen, c.cut = false, true })
		c.work.Wait()
	})
	return c
}

func (c *cable) addr() string { return c.listener.Addr().String() }

// set changes the state, and lets go who waits for that. A cut closes what is open.
func (c *cable) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	if c.cut {
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.conns = nil
	}
	c.moved.Broadcast()
}

func (c *cable) freeze() { c.set(func() { c.frozen = true }) }
func (c *cable) sever()  { c.set(func() { c.cut = true }) }
func (c *cable) heal()   { c.set(func() { c.frozen, c.cut = false, false }) }

func (c *cable) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.set(func() { c.conns = append(c.conns, client, server) })
		c.work.Go(func() { c.carry(client, server) })
		c.work.Go(func() { c.carry(server, client) })
	}
}

// carry copies while the cable is not frozen.
func (c *cable) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		for c.frozen {
			c.moved.Wait()
		}
		c.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
