package pgfault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"shop/loadtest/fault/proxy"

	"github.com/jackc/pgx/v5/pgconn"
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
