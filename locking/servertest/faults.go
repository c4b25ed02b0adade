// SPDX-License-Identifier: MIT

package servertest

import (
	"net"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Faults is a Proxy that disturbs only requests of one kind, so that connections can
// always be made and monitored. It is for protocols with one request at a time on a
// connection.
type Faults struct {
	*Proxy
	kind func(request []byte) bool

	mu    sync.Mutex
	lose  int  // replies still to lose
	lost  int  // replies lost so far
	drop  int  // requests still to drop before the server
	reset bool // lose a reply by closing the connection
	delay time.Duration
	fates map[net.Conn]fate // by client: the fate of the reply to the pending request
}

type fate int

const (
	passed fate = iota
	late
	lost
)

// NewFaults makes a Proxy in front of the server at addr. kind selects the requests to
// disturb.
func NewFaults(t testing.TB, addr string, kind func(request []byte) bool) *Faults {
	t.Helper()
	f := &Faults{Proxy: NewProxy(t, addr), kind: kind, fates: map[net.Conn]fate{}}
	f.OnRequest(f.request)
	f.OnReply(f.reply)
	return f
}

// Disturbed is a store behind proxies, one in front of each of its servers. Each disturbs its
// own requests.
func Disturbed(store locking.Store, proxies ...*Faults) locktest.Proxied {
	return locktest.Proxied{
		Store: store,
		Lose: func(n int) {
			for _, p := range proxies {
				p.Lose(n)
			}
		},
		Lost: func() (n int) {
			for _, p := range proxies {
				n += p.Lost()
			}
			return n
		},
		Delay: func(d time.Duration) {
			for _, p := range proxies {
				p.Delay(d)
			}
		},
	}
}

// Lose lets the server serve the next n requests but loses their replies. 0 stops losing.
func (f *Faults) Lose(n int) { f.change(func() { f.lose = n }) }

// Lost counts the replies lost so far.
func (f *Faults) Lost() (n int) { f.change(func() { n = f.lost }); return n }

// Drop loses the next n requests before they reach the server.
func (f *Faults) Drop(n int) { f.change(func() { f.drop = n }) }

// Reset makes a lost reply close its connection.
func (f *Faults) Reset(yes bool) { f.change(func() { f.reset = yes }) }

// Delay delays each further reply by d.
func (f *Faults) Delay(d time.Duration) { f.change(func() { f.delay = d }) }

func (f *Faults) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *Faults) request(bytes []byte, client, _ net.Conn) (forward bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.fates[client] == lost: // for good: later replies cannot be assigned to requests
	case !f.kind(bytes):
		f.fates[client] = passed
	case f.drop > 0:
		f.drop--
		return false
	case f.lose > 0:
		f.lose--
		f.fates[client] = lost
	default:
		f.fates[client] = late
	}
	return true
}

func (f *Faults) reply(_ []byte, client, server net.Conn) (forward bool) {
	f.mu.Lock()
	fate, delay, reset := f.fates[client], f.delay, f.reset
	if fate == lost {
		f.lost++
	}
	f.mu.Unlock()
	switch {
	case fate == late:
		<-time.After(delay)
	case fate == lost && reset:
		_, _ = client.Close(), server.Close()
	}
	return fate != lost
}
