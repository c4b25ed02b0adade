// SPDX-License-Identifier: MIT

// Package proxy is the TCP proxy for all faults between a replica and its servers. The packages
// that know the protocols decide what happens to the bytes.
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
// The replica and the server may be killed and restarted while the Proxy runs.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	serve    func(client, server net.Conn)
	work     sync.WaitGroup
	life     context.Context // ends with Close
	end      context.CancelFunc
}

// Listen accepts clients on a loopback port. For each client, dial connects to the server, and
// serve forwards until both connections have ended. If dial fails, the client's connection is
// closed, as if the server were down.
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

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Done returns a channel that Close closes.
func (p *Proxy) Done() <-chan struct{} { return p.life.Done() }

// Close stops accepting, closes all connections, and waits for their goroutines.
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
