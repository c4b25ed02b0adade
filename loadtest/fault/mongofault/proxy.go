package mongofault

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"shop/loadtest/fault/proxy"
)

// appName is by what the server knows the clients on a Proxy, if their URL does not say.
const appName = "mongofault"

// Proxy stands between one replica and the primary of a set and understands what passes:
// it records the breaches of the rules, and may break the connection instead of delivering
// the answer to a commit. All goes through as it came, byte for byte. The primary is looked
// for when a connection is made, and only then: another fail-over ends the connections to
// one that is none any more.
type Proxy struct {
	*proxy.Proxy
	url      string
	clients  string // by what the server knows them
	hosts    []string
	recorder *recorder

	cuts   atomic.Int64 // commits whose answer is still to be swallowed
	cut    atomic.Int64 // … was swallowed
	failed atomic.Int64 // commits that were answered with a write concern error
}

// NewProxy stands before the set of mongoURL. Clients connect to URL.
func NewProxy(mongoURL string) (*Proxy, error) {
	hosts, direct, err := hostsOf(mongoURL)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{hosts: hosts, recorder: newRecorder()}
	if p.Proxy, err = proxy.Listen(p.dial, p.serve); err != nil {
		return nil, err
	}
	p.url = direct(p.Addr())
	at, err := url.Parse(p.url)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p.clients = at.Query().Get("appName")
	return p, nil
}

// URL is the database's, through this proxy.
func (p *Proxy) URL() string { return p.url }

// Breaches tells how many transactions there were, and what in them was against
// the rules of a strategy. Those of lockid are for all but inc, which locks by
// its writes and may read before.
func (p *Proxy) Breaches(strategy string) (transactions int64, breaches []string) {
	return p.recorder.report(strategy)
}

// Conflicts is how many locks the server refused because another transaction had them.
func (p *Proxy) Conflicts() int64 {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	return p.recorder.refusals
}

// dial connects to the primary. Where there is none the client is refused, and comes again.
func (p *Proxy) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	n, _, err := primaryOf(ctx, p.hosts, 0)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", p.hosts[n])
}

// serve forwards until one end has ended.
func (p *Proxy) serve(client, server net.Conn) {
	hangUp := func() {
		_ = client.Close()
		_ = server.Close()
	}
	c := &conn{proxy: p, waiting: map[uint32]statement{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer hangUp()
		forward(server, client, c.answer)
	})
	forward(client, server, c.request)
	hangUp()
	reading.Wait()
}

// forward passes messages on as long as they come and handle says that it goes on.
func forward(from, to net.Conn, handle func(message) (pass, on bool)) {
	r := bufio.NewReaderSize(from, bufferSize)
	var m message
	for on := true; on; {
		var err error
		if m, err = read(r, m); err != nil {
			return
		}
		var pass bool
		if pass, on = handle(m); pass {
			if _, err := to.Write(m); err != nil {
				return
			}
		}
	}
}

// conn is one connection through a Proxy.
type conn struct {
	proxy *Proxy

	mu      sync.Mutex
	waiting map[uint32]statement // for their answer, by the message's id
}

// moreToCome is the flag of a message that gets no answer.
const moreToCome = 1 << 1

// request handles what the client says.
func (c *conn) request(m message) (pass, on bool) {
	s, ok := understand(m)
	if !ok {
		return true, true
	}
	c.proxy.recorder.record(s)
	if m[headLength]&moreToCome == 0 {
		c.mu.Lock()
		c.waiting[m.id()] = s
		c.mu.Unlock()
	}
	return true, true
}

// answer handles what the server says. An answer that is swallowed is that to a
// commit which was done.
func (c *conn) answer(m message) (pass, on bool) {
	c.mu.Lock()
	s, ok := c.waiting[m.answers()]
	delete(c.waiting, m.answers())
	c.mu.Unlock()
	if !ok {
		return true, true
	}
	answer := m.body()
	code, _ := refusalOf(answer)
	_, unsure := answer.Lookup("writeConcernError").DocumentOK()
	switch {
	case code != 0:
		c.proxy.recorder.refused(s, code)
		return true, !slices.Contains(noPrimary, code)
	case s.command != commit:
	case unsure:
		c.proxy.recorder.inDoubt(s)
		c.proxy.failed.Add(1)
	case c.proxy.toCut():
		c.proxy.recorder.inDoubt(s)
		c.proxy.cut.Add(1)
		return false, false
	}
	return true, true
}

// noPrimary are the codes of a server that is none any more: NotWritablePrimary,
// PrimarySteppedDown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk.
var noPrimary = []int64{10107, 189, 11602, 13435}

// toCut takes one of the cuts that were ordered.
func (w *Proxy) toCut() bool {
	for n := w.cuts.Load(); n > 0; n = w.cuts.Load() {
		if w.cuts.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
