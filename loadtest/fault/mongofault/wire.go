package mongofault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
)

// appName is by what the server knows the clients on a Wire, if their URL does not say.
const appName = "mongofault"

// Wire is the line between one replica and the primary of a set, with somebody
// on it who understands what is said: he remembers who breaks the rules, and may
// break the connection instead of delivering the answer to a commit.
//
//	replica ──► Wire ──► primary
//	        ◄──      ◄──          answers are passed on, and read
//
// All goes through as it came, byte for byte. The primary is looked for when a
// connection is made, and only then: another fail-over ends the connections to
// one that is none any more.
type Wire struct {
	url      string
	clients  string // by what the server knows them
	hosts    []string
	listener net.Listener
	ear      *ear
	work     sync.WaitGroup
	life     context.Context // ends with Close
	end      context.CancelFunc

	cuts   atomic.Int64 // commits whose answer is still to be swallowed
	cut    atomic.Int64 // … was swallowed
	failed atomic.Int64 // commits that were answered with a write concern error
}

// NewWire lays a line to the set of mongoURL. Whoever connects to URL is
// connected to its primary.
func NewWire(mongoURL string) (*Wire, error) {
	hosts, direct, err := hostsOf(mongoURL)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	w := &Wire{url: direct(l.Addr().String()), hosts: hosts, listener: l, ear: newEar()}
	at, err := url.Parse(w.url)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wire: %w", err), l.Close())
	}
	w.clients = at.Query().Get("appName")
	w.life, w.end = context.WithCancel(context.Background())
	w.work.Go(w.accept)
	return w, nil
}

// URL is the database's, through this line.
func (w *Wire) URL() string { return w.url }

// Overheard tells how many transactions there were, and what in them was against
// the rules of a strategy. Those of lockid are for all but inc, which locks by
// its writes and may read before.
func (w *Wire) Overheard(strategy string) (transactions int64, breaches []string) {
	return w.ear.tell(strategy)
}

// Close breaks all connections, takes no new ones, and waits until that is done.
func (w *Wire) Close() {
	w.end()
	_ = w.listener.Close()
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

// connect joins one client to the primary until one of them has ended. Where
// there is no primary the client is refused, and comes again.
func (w *Wire) connect(client net.Conn) {
	defer client.Close()
	looking, cancel := context.WithTimeout(w.life, askWait)
	defer cancel()
	n, _, err := primaryOf(looking, w.hosts, 0)
	if err != nil {
		return
	}
	server, err := net.Dial("tcp", w.hosts[n])
	if err != nil {
		return
	}
	defer server.Close()
	hangUp := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(w.life, hangUp)()
	c := &cable{wire: w, waiting: map[uint32]statement{}}
	var listening sync.WaitGroup
	listening.Go(func() {
		defer hangUp()
		carry(server, client, c.answer)
	})
	carry(client, server, c.request)
	hangUp()
	listening.Wait()
}

// carry passes messages on as long as they come and heed says that it goes on.
func carry(from, to net.Conn, heed func(message) (pass, on bool)) {
	r := bufio.NewReaderSize(from, bufferSize)
	var m message
	for on := true; on; {
		var err error
		if m, err = read(r, m); err != nil {
			return
		}
		var pass bool
		if pass, on = heed(m); pass {
			if _, err := to.Write(m); err != nil {
				return
			}
		}
	}
}
