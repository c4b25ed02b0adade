// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"shop/locking"
)

// link is one connection of the client to a member. It reads along, because the client does
// not report the session timeout that ZooKeeper has granted, and it can be closed while the
// client waits for an answer, for which the client has no time limit.
type link struct {
	net.Conn
	client *client
	limit  *time.Timer // of the handshake
	answer []byte      // the beginning of the answer to the handshake

	ready  chan struct{} // closed when the client has sent its watches
	sent   sync.Once
	read   bool // an answer to a request
	broken bool // a Write has failed
}

// The number of the request that sets all watches again, and its place: after the length of the
// request and its own number.
const (
	opSetWatches = 101
	opOffset     = 4 + 4
)

// watchesTimeout bounds the wait for that request.
const watchesTimeout = 50 * time.Millisecond

// The beginning of the answer: its length, the version of the protocol, the timeout in
// milliseconds, and the id of the session; 0: the session has expired.
const answerLen = 4 + 4 + 4 + 8

// connect is the zk.Dialer of the client. It resolves a name each time.
func (c *client) connect(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.life, min(timeout, c.answerTimeout()))
	defer cancel()
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, client: c, ready: make(chan struct{})}
	l.limit = time.AfterFunc(c.answerTimeout(), func() { _ = conn.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		l.limit.Stop()
		_ = conn.Close()
		return nil, locking.ErrClosed
	}
	c.link = l
	return l, nil
}

func (l *link) Read(b []byte) (int, error) {
	if len(l.answer) == answerLen && !l.read {
		l.read = true
		l.awaitWatches()
	}
	n, err := l.Conn.Read(b)
	if rest := answerLen - len(l.answer); rest > 0 {
		l.answer = append(l.answer, b[:min(n, rest)]...)
		if len(l.answer) == answerLen {
			timeout, id := binary.BigEndian.Uint32(l.answer[8:]), binary.BigEndian.Uint64(l.answer[12:])
			if id != 0 { // or the limit closes it: the client forgets the connection on which it learns that
				l.limit.Stop()
			}
			l.client.hosts.Connected()
			l.client.identify(int64(id), time.Duration(timeout)*time.Millisecond)
		}
	}
	return n, err
}

// Write is called once for each request. A failed Write closes the connection and returns no error. The client would
// otherwise answer the request when Write fails, again at its Close, and again when the connection ends. Its channel has room
// for two answers, or one of a login, and a further one blocks the client for ever.
func (l *link) Write(b []byte) (int, error) {
	if len(b) >= opOffset+4 && binary.BigEndian.Uint32(b[opOffset:]) == opSetWatches {
		l.sent.Do(func() { close(l.ready) })
	}
	if l.broken {
		return len(b), nil // nothing may follow a part of a request
	}
	if _, err := l.Conn.Write(b); err != nil {
		l.broken = true
		go l.Close() // in TLS it may take seconds
	}
	return len(b), nil
}

// awaitWatches delays the first answer until the client has sent its watches, if it has any: on a new
// connection it reads the last transaction it has seen without synchronization, and each answer sets it.
func (l *link) awaitWatches() {
	if l.client.watching.Load() == 0 {
		return
	}
	select {
	case <-l.ready:
	case <-time.After(watchesTimeout):
	}
}

// Close also ends the limit of the handshake.
func (l *link) Close() error {
	l.limit.Stop()
	return l.Conn.Close()
}

// hosts is a zk.HostProvider. That of the client resolves the names once, and waits for a second before
// it connects again to an only server. This one lets the client wait only when no server could be reached
// in two rounds.
type hosts struct {
	servers []string
	next    int
	tried   int // since the last connection
}

// Init is called before all others, with the servers in random order.
func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

// Len returns the number of servers.
func (h *hosts) Len() int { return len(h.servers) }

// Connected is called for each answered handshake, in the goroutine of Next.
func (h *hosts) Connected() { h.tried = 0 }

// Next returns the server to connect to, and whether to wait before.
func (h *hosts) Next() (server string, wait bool) {
	if wait = h.tried == 2*len(h.servers); wait {
		h.tried = 0
	}
	server = h.servers[h.next%len(h.servers)]
	h.next, h.tried = h.next+1, h.tried+1
	return server, wait
}
