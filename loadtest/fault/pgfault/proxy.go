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

// Proxy stands between one replica and PostgreSQL and understands what passes: an
// interceptor may hold a segment back and deliver it late, or break the connection right
// before or right after a COMMIT. While no fault is injected, all goes through as it came,
// byte for byte. The connection is in clear: sslmode=disable.
type Proxy struct {
	*proxy.Proxy
	url         string
	interceptor atomic.Pointer[interceptor]
}

// interceptor sees each segment before it goes on to the server. It may take its time,
// and says what becomes of it.
type interceptor func(*segment) action

type action int

const (
	deliver   action = iota
	cutBefore        // the connection breaks, and the server never gets the segment
	cutAfter         // the server gets it, and the connection breaks instead of the answer
)

var errURL = errors.New("proxy: a URL is needed, with sslmode=disable (not shown, since it may hold a password)")

// NewProxy stands before the server of databaseURL. Clients connect to URL.
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

// URL is the database's, through this proxy.
func (p *Proxy) URL() string { return p.url }

// serve forwards until both ends have ended.
func (p *Proxy) serve(client, server net.Conn) {
	c := &conn{proxy: p, client: client, server: server.(*net.TCPConn), prepared: map[string]string{}}
	var reading sync.WaitGroup
	reading.Go(c.readServer)
	c.readClient(bufio.NewReaderSize(client, bufferSize))
	// The server reads what it was sent before it reads this end, and may answer it, with
	// or without a client.
	_ = c.server.CloseWrite()
	reading.Wait()
}

// intercept lets t see all segments from now on; nil: none does.
func (p *Proxy) intercept(t interceptor) {
	if t == nil {
		p.interceptor.Store(nil)
		return
	}
	p.interceptor.Store(&t)
}

// decide asks the interceptor, if there is one.
func (p *Proxy) decide(s *segment) action {
	t := p.interceptor.Load()
	if t == nil {
		return deliver
	}
	decided := (*t)(s)
	select {
	case <-p.Done(): // what is held when the proxy closes never arrives
		return cutBefore
	default:
		return decided
	}
}

// hold keeps back the next segment that is wanted, until release is called; the others
// go by. release must be called, and may be called again.
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
	prepared map[string]string // of readClient: the SQL of each prepared statement
	tx       *transaction      // readClient's: the one that the next statement belongs to; nil: none
	muted    atomic.Bool       // the client gets no more answers

	mu      sync.Mutex
	pending []*segment   // sent, and not answered, in order
	open    *transaction // of the last answered one, if it has not ended there
	dead    bool         // nothing will be answered any more
}

const (
	bufferSize = 64 << 10
	messageMax = 64 << 20 // a greater one is no message, but nonsense
)

var (
	errCut      = errors.New("proxy: cut")
	errNonsense = errors.New("proxy: not the PostgreSQL protocol")
)

// readClient passes on what the client says, until it ends.
func (c *conn) readClient(r *bufio.Reader) {
	err := c.greet(r)
	for err == nil {
		var p *segment
		if p, err = c.next(r); err == nil {
			err = c.send(p, c.proxy.decide(p))
		}
	}
}

// greet is the start-up message, which alone has no type in front. A client
// that asks for encryption is told that there is none. A request to cancel needs
// no care: the server closes behind it.
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

// next reads a segment: all that the client says before it waits for an answer.
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

// send does with the segment what was decided.
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
	// The client loses its connection when the server has answered: to know that
	// earlier it would ask, on another one, for what it sent to be cancelled.
	<-p.answered
	_ = c.client.Close()
	return errCut
}

// expect notes that p will be answered.
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

// readServer passes the answers on, as many at a time as are there, until the
// server has no more. They are lost where the client is gone.
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

// hangUp ends whatever waits for an answer.
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

// read appends one message to buf: its type (if it has one), its length, which
// counts itself, and the rest.
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
