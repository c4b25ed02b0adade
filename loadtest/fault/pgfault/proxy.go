// SPDX-License-Identifier: MIT

package pgfault

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"shop/loadtest/fault/proxy"
)

// Proxy connects one replica to PostgreSQL and parses the protocol, so that an
// interceptor can delay a segment, or break the connection right before or right after a
// COMMIT. While no fault is injected, all data passes unchanged, byte for byte. The
// connection must be unencrypted: sslmode=disable.
type Proxy struct {
	*proxy.Proxy
	url         string
	interceptor atomic.Pointer[interceptor]
}

// interceptor decides the action for each segment before the server gets it. It may block.
type interceptor func(*segment) action

type action int

const (
	deliver   action = iota
	cutBefore        // the client's connection breaks, and the server never gets the segment
	cutAfter         // the server executes the segment, and the client's connection breaks before the answer
)

var errURL = errors.New("proxy: want a database URL with sslmode=disable (not shown: it may contain a password)")

// NewProxy starts a proxy for the server of databaseURL. Clients connect to its URL.
func NewProxy(databaseURL string) (*Proxy, error) {
	upstream, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, errURL
	}
	here, err := url.Parse(databaseURL)
	if err != nil || upstream.TLSConfig != nil {
		return nil, errURL
	}
	p := &Proxy{}
	p.Proxy, err = proxy.Listen(func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(upstream.Host, fmt.Sprint(upstream.Port)))
	}, p.serve)
	if err != nil {
		return nil, err
	}
	here.Host = p.Addr()
	p.url = here.String()
	return p, nil
}

// URL returns the URL of the database through this proxy.
func (p *Proxy) URL() string { return p.url }

// serve forwards until both connections have ended.
func (p *Proxy) serve(client, server net.Conn) {
	c := &conn{proxy: p, client: client, server: server.(*net.TCPConn), prepared: map[string]string{}}
	var reading sync.WaitGroup
	reading.Go(c.readServer)
	c.readClient(bufio.NewReaderSize(client, bufferSize))
	// The server first processes the data that it was sent, and may answer, even if the client is gone.
	_ = c.server.CloseWrite()
	reading.Wait()
}

// intercept passes all further segments to t; nil: to no interceptor.
func (p *Proxy) intercept(t interceptor) {
	if t == nil {
		p.interceptor.Store(nil)
		return
	}
	p.interceptor.Store(&t)
}

// decide returns the interceptor's action, or deliver if there is none.
func (p *Proxy) decide(s *segment) action {
	t := p.interceptor.Load()
	if t == nil {
		return deliver
	}
	decided := (*t)(s)
	select {
	case <-p.Done(): // a segment held while the proxy closes is never delivered
		return cutBefore
	default:
		return decided
	}
}

// hold holds back the next wanted segment until release is called, and delivers all others.
// release must be called; calling it again has no effect.
func (p *Proxy) hold(wanted func(*segment) bool) (held <-chan *segment, release func()) {
	var taken atomic.Bool
	caught, released := make(chan *segment, 1), make(chan struct{})
	p.intercept(func(s *segment) action {
		if !wanted(s) || !taken.CompareAndSwap(false, true) {
			return deliver
		}
		caught <- s
		select {
		case <-released:
		case <-p.Done():
		}
		return deliver
	})
	return caught, sync.OnceFunc(func() {
		p.intercept(nil)
		close(released)
	})
}

// conn is one connection through a Proxy.
type conn struct {
	proxy    *Proxy
	client   net.Conn
	server   *net.TCPConn
	prepared map[string]string // SQL of each prepared statement; only readClient uses it
	tx       *transaction      // of the next statement, nil: none; only readClient uses it
	muted    atomic.Bool       // the client gets no more answers

	mu      sync.Mutex
	pending []*segment   // sent and unanswered, in order
	open    *transaction // of the last answered segment, if it is still open
	dead    bool         // no more answers will come
}

const (
	bufferSize = 64 << 10
	messageMax = 64 << 20 // a larger length is not the protocol
)

var (
	errCut      = errors.New("proxy: cut")
	errNonsense = errors.New("proxy: not the PostgreSQL protocol")
)

// readClient passes on the client's segments until the connection ends.
func (c *conn) readClient(r *bufio.Reader) {
	err := c.greet(r)
	for err == nil {
		var p *segment
		if p, err = c.next(r); err == nil {
			err = c.send(p, c.proxy.decide(p))
		}
	}
}

// greet passes on the start-up message, the only one without a type byte. It refuses
// encryption to a client that requests it. A cancel request passes like a start-up
// message: the server closes the connection after it.
func (c *conn) greet(r *bufio.Reader) error {
	for {
		raw, err := read(r, nil, 0)
		if err != nil {
			return err
		}
		if new(pgproto3.SSLRequest).Decode(raw[4:]) != nil && new(pgproto3.GSSEncRequest).Decode(raw[4:]) != nil {
			_, err := c.server.Write(raw)
			return err
		}
		if _, err := c.client.Write([]byte{'N'}); err != nil {
			return err
		}
	}
}

// next reads a segment: all that the client sends before it waits for an answer.
func (c *conn) next(r *bufio.Reader) (*segment, error) {
	p := &segment{answered: make(chan struct{})}
	for {
		begin := len(p.raw)
		raw, err := read(r, p.raw, 1)
		if err != nil {
			return nil, err
		}
		p.raw = raw
		whole, err := c.understand(p, raw[begin], raw[begin+5:])
		if whole || err != nil {
			return p, err
		}
	}
}

// send carries out the action that was decided for a segment.
func (c *conn) send(p *segment, m action) error {
	c.muted.Store(m != deliver)
	if m == cutBefore || !c.expect(p) {
		_ = c.client.Close()
		p.end()
		return errCut
	}
	if _, err := c.server.Write(p.raw); err != nil || m == deliver {
		return err
	}
	// The client loses its connection only after the server has answered: if it noticed
	// the loss earlier, it would send a cancel request on another connection.
	<-p.answered
	_ = c.client.Close()
	return errCut
}

// expect records that p awaits an answer, and returns false if no more answers will come.
func (c *conn) expect(p *segment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	if p.asks {
		c.pending = append(c.pending, p)
	}
	return true
}

// readServer passes the answers on, in batches, until the server's connection ends.
// Answers to a client that is gone are dropped.
func (c *conn) readServer() {
	defer c.hangUp()
	r := bufio.NewReaderSize(c.server, bufferSize)
	var out []byte
	for {
		begin := len(out)
		var err error
		if out, err = read(r, out, 1); err != nil {
			return
		}
		c.noteAnswer(out[begin], out[begin+5:])
		if r.Buffered() == 0 || len(out) > bufferSize {
			if !c.muted.Load() {
				_, _ = c.client.Write(out)
			}
			out = out[:0]
		}
	}
}

// hangUp ends everything that waits for an answer.
func (c *conn) hangUp() {
	_ = c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, p := range c.pending {
		p.end()
	}
	if c.open != nil {
		c.open.end()
	}
}

// read appends one message to buf: its type (if typed is 1), its length, which
// includes the length field, and its body.
func read(r *bufio.Reader, buf []byte, typed int) ([]byte, error) {
	head, err := r.Peek(typed + 4)
	if err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[typed:]))
	if size < 4 || size > messageMax {
		return nil, errNonsense
	}
	begin := len(buf)
	buf = append(buf, make([]byte, typed+int(size))...)
	_, err = io.ReadFull(r, buf[begin:])
	return buf, err
}
