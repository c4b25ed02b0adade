package fault

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// Wire is the line between one replica and PostgreSQL, with somebody on it who
// understands what is said: he may keep a packet back and deliver it late, or
// break the connection right before or right after a COMMIT.
//
//	replica ──► Wire ──► PostgreSQL
//	        ◄──      ◄──              answers are passed on, and read
//
// Both may be killed and started again meanwhile. While no fault strikes, all
// goes through as it came, byte for byte. The line is in clear: sslmode=disable.
type Wire struct {
	url      string
	upstream string
	listener net.Listener
	tap      atomic.Pointer[tap]
	ended    chan struct{} // closed by Close
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: closed
}

// tap sees each packet before it goes on to the server. It may take its time,
// and says what becomes of it.
type tap func(*packet) move

type move int

const (
	deliver   move = iota
	cutBefore      // the connection breaks, and the server never gets the packet
	cutAfter       // the server gets it, and the connection breaks instead of the answer
)

var errURL = errors.New("wire: a URL is needed, with sslmode=disable (not shown, since it may hold a password)")

// NewWire lays a line to the server of databaseURL. Whoever connects to URL is
// connected to that.
func NewWire(databaseURL string) (*Wire, error) {
	upstream, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, errURL
	}
	here, err := url.Parse(databaseURL)
	if err != nil || upstream.TLSConfig != nil {
		return nil, errURL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	here.Host = l.Addr().String()
	w := &Wire{
		url:      here.String(),
		upstream: net.JoinHostPort(upstream.Host, fmt.Sprint(upstream.Port)),
		listener: l,
		ended:    make(chan struct{}),
		conns:    map[net.Conn]bool{},
	}
	w.work.Go(w.accept)
	return w, nil
}

// URL is the database's, through this line.
func (w *Wire) URL() string { return w.url }

// Close breaks all connections, takes no new ones, and waits until that is done.
func (w *Wire) Close() {
	_ = w.listener.Close()
	w.mu.Lock()
	if w.conns != nil {
		close(w.ended)
	}
	for c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
	w.mu.Unlock()
	w.work.Wait()
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.work.Go(func() { w.connect(client) })
	}
}

// connect joins one client to the server until both have ended. A server that
// is down refuses, as without a wire.
func (w *Wire) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.keep(client, server) {
		return
	}
	defer w.forget(client, server)
	c := &cable{wire: w, client: client, server: server.(*net.TCPConn), prepared: map[string]string{}}
	var listening sync.WaitGroup
	listening.Go(c.listen)
	c.speak(bufio.NewReaderSize(client, bufferSize))
	// The server reads what it was sent before it reads this end, and may have
	// something to say about it, heard by anyone or not.
	_ = c.server.CloseWrite()
	listening.Wait()
}

func (w *Wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		return false
	}
	for _, c := range conns {
		w.conns[c] = true
	}
	return true
}

func (w *Wire) forget(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		delete(w.conns, c)
	}
}

// watch lets t see all packets from now on; nil: nobody does.
func (w *Wire) watch(t tap) {
	if t == nil {
		w.tap.Store(nil)
		return
	}
	w.tap.Store(&t)
}

// decide asks the tap, if there is one.
func (w *Wire) decide(p *packet) move {
	if t := w.tap.Load(); t != nil {
		return (*t)(p)
	}
	return deliver
}

// hold keeps back the next packet that is wanted, until let is called; the
// others go by. let must be called, and may be called again.
func (w *Wire) hold(wanted func(*packet) bool) (held <-chan *packet, let func()) {
	var taken atomic.Bool
	caught, released := make(chan *packet, 1), make(chan struct{})
	w.watch(func(p *packet) move {
		if !wanted(p) || !taken.CompareAndSwap(false, true) {
			return deliver
		}
		caught <- p
		select {
		case <-released:
		case <-w.ended:
		}
		return deliver
	})
	return caught, sync.OnceFunc(func() {
		w.watch(nil)
		close(released)
	})
}
