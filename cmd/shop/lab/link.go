// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is the network between a replica and a store. It can lose all connections for some time, or deliver messages
// late. The shop's own connections do not use it.
type link struct {
	mu     sync.Mutex
	conns  map[*conn]bool
	downs  time.Time // until then it refuses connections
	lates  time.Time // until then messages to PostgreSQL wait
	report func(refused bool)
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

var errDown = errors.New("lab: the network is down")

// over returns a function that dials through the link.
func (k *link) over(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if k.isDown() {
			return nil, errDown
		}
		server, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: server, link: k}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.conns == nil {
			k.conns = map[*conn]bool{}
		}
		k.conns[c] = true
		return c, nil
	}
}

// DialContext makes a link the dialer of a client for MongoDB or etcd.
func (k *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return k.over((&net.Dialer{}).DialContext)(ctx, network, address)
}

// DialHook makes a link a redis.Hook.
func (k *link) DialHook(next redis.DialHook) redis.DialHook { return k.over(next) }

// ProcessHook changes nothing.
func (k *link) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (k *link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (k *link) isDown() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.downs) || time.Now().Before(k.lates)
}

// cut closes all connections, and refuses new ones for d.
func (k *link) cut(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.downs = time.Now().Add(d)
	for c := range k.conns {
		_ = c.Conn.Close()
	}
	clear(k.conns)
}

// delay delivers the statements that are sent to PostgreSQL in the next d only after that, even if their sender has
// given up. It calls report with the answer to those of such a sender: refused, or committed.
func (k *link) delay(d time.Duration, report func(refused bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lates, k.report = time.Now().Add(d), report
}

// conn is a connection of a link.
type conn struct {
	net.Conn
	link *link

	mu      sync.Mutex
	late    []byte // written, but not sent yet
	report  func(refused bool)
	replies []byte // to what was sent late, from the first incomplete message on
	refused bool
}

// Write keeps what the link delays.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late != nil {
		c.late = append(c.late, b...)
		return len(b), nil
	}
	c.link.mu.Lock()
	left, report := time.Until(c.link.lates), c.link.report
	c.link.mu.Unlock()
	if left <= 0 || !has(b, 'E') { // Execute: to prepare a statement, or to look whether the connection works, is not delayed
		return c.Conn.Write(b)
	}
	c.late = bytes.Clone(b)
	time.AfterFunc(left, func() { c.deliver(report) })
	return len(b), nil
}

// deliver sends what is late. If the sender has given up (Terminate), only report learns the answer.
func (c *conn) deliver(report func(bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if has(c.late, 'X') {
		c.report = report
	}
	_ = c.SetWriteDeadline(time.Time{})
	_, _ = c.Conn.Write(c.late)
	c.late = nil
}

// Read looks for the answer to what was sent late.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report == nil {
		return n, err
	}
	c.replies = append(c.replies, b[:n]...)
	var report func(bool)
	c.replies = walk(c.replies, func(kind byte, body []byte) {
		tag := string(bytes.TrimRight(body, "\x00"))
		c.refused = c.refused || kind == 'E' || kind == 'C' && tag == "UPDATE 0"
		if c.report != nil && (c.refused || kind == 'C' && tag == "COMMIT") {
			report, c.report = c.report, nil
		}
	})
	if report != nil {
		report(c.refused)
	}
	return n, err
}

// Close forgets the connection.
func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// walk calls visit for each complete message of PostgreSQL's protocol, and returns the rest.
func walk(b []byte, visit func(kind byte, body []byte)) []byte {
	for len(b) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if size < 5 || size > len(b) {
			break
		}
		visit(b[0], b[5:size])
		b = b[size:]
	}
	return b
}

// has reports whether there is a message of this kind in b.
func has(b []byte, kind byte) (found bool) {
	walk(b, func(k byte, _ []byte) { found = found || k == kind })
	return found
}
