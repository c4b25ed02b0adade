// SPDX-License-Identifier: MIT

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

// appName is the appName of the clients of a Proxy whose URL has none.
const appName = "mongofault"

// Proxy connects one replica to the primary of a set and parses the protocol: it
// records breaches of the rules, and can break the connection instead of delivering
// the answer to a commit. All other data passes unchanged, byte for byte. Each new connection
// goes to the current primary. A connection ends when its server answers that it is no longer
// the primary.
type Proxy struct {
	*proxy.Proxy
	url      string
	clients  string // appName of its clients
	hosts    []string
	recorder *recorder

	cuts   atomic.Int64 // answers to commits that are still to be dropped
	cut    atomic.Int64 // answers to commits that were dropped
	failed atomic.Int64 // commits answered with a write concern error
}

// NewProxy starts a proxy for the set of mongoURL. Clients connect to its URL.
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

// URL returns the URL of the database through this proxy.
func (p *Proxy) URL() string { return p.url }

// Breaches returns the number of transactions, and the breaches of the rules of a
// strategy. All strategies follow the rules of lockid except inc, which locks by its
// writes and may read before.
func (p *Proxy) Breaches(strategy string) (transactions int64, breaches []string) {
	return p.recorder.report(strategy)
}

// Conflicts returns how many locks the server refused because another transaction held them.
func (p *Proxy) Conflicts() int64 {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	return p.recorder.refusals
}

// dial connects to the primary. Without a primary the client's connection is closed, and the
// client retries.
func (p *Proxy) dial(ctx context.Context) (net.Conn, error) {
	asking, cancel := context.WithTimeout(ctx, askWait) // a stopped member uses all of it
	defer cancel()
	n, _, err := primaryOf(asking, p.hosts, 0)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", p.hosts[n])
}

// serve forwards until either connection has ended.
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

// forward reads messages until handle returns !on, and writes those that handle passes.
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
	waiting map[uint32]statement // unanswered, by the message's id
}

// moreToCome is the flag of a message that gets no answer.
const moreToCome = 1 << 1

// request handles a message of the client.
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

// answer handles a message of the server. It drops only answers to commits that have
// succeeded.
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

// noPrimary lists the errors of a server that is no longer the primary: NotWritablePrimary,
// PrimarySteppedDown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk.
var noPrimary = []int64{10107, 189, 11602, 13435}

// toCut takes one of the pending cuts, if there is any.
func (p *Proxy) toCut() bool {
	for n := p.cuts.Load(); n > 0; n = p.cuts.Load() {
		if p.cuts.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
