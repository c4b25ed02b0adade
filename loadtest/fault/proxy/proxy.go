// Package proxy is the TCP proxy of all faults between a replica and its servers. What
// is done to the bytes on their way is the affair of the package that knows the protocol.
package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Proxy joins each client to a server:
//
//	replica ──► Proxy ──► server
//	        ◄──       ◄──
//
// Both may be killed and started again meanwhile.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	serve    func(client, server net.Conn)
	work     sync.WaitGroup
	life     context.Context // ends with Close
	end      context.CancelFunc
}

// Listen takes clients on a loopback port. For each, dial connects to the server, and
// serve forwards until both have ended. Where dial fails the client is refused, as by a
// server that is down.
func Listen(dial func(context.Context) (net.Conn, error), serve func(client, server net.Conn)) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, dial: dial, serve: serve}
	p.life, p.end = context.WithCancel(context.Background())
	p.work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.work.Go(func() { p.join(client) })
		}
	})
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Done is closed by Close.
func (p *Proxy) Done() <-chan struct{} { return p.life.Done() }

// Close breaks all connections, takes no new ones, and waits until that is done.
func (p *Proxy) Close() {
	p.end()
	_ = p.listener.Close()
	p.work.Wait()
}

func (p *Proxy) join(client net.Conn) {
	defer client.Close()
	server, err := p.dial(p.life)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(p.life, func() {
		_ = client.Close()
		_ = server.Close()
	})()
	p.serve(client, server)
}
