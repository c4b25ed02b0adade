// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking/locktest"
)

// The numbers of the requests that end a session, and that log in.
const (
	opClose   = -11
	opSetAuth = 100
)

// failing is a connection on which some requests fail.
type failing struct {
	net.Conn
	fails func(op int32) bool
}

func (f failing) Write(b []byte) (int, error) {
	if f.fails(int32(binary.BigEndian.Uint32(b[opOffset:]))) {
		return 0, errors.New("broken pipe")
	}
	return f.Conn.Write(b)
}

// failingStore opens a Store. The test must end within a limit, which the client might not.
func failingStore(t *testing.T, o Options, fails func(op int32) bool) *opened {
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return failing{conn, fails}, err
	}
	s, err := shared(t).with(t, time.Minute, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t *testing.T, what string, do func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s has not ended", what)
	}
}

// A request of go-zookeeper that is sent after its Close, and fails, would stop the client for ever.
func TestClose_EndsAlthoughRequestsFail(t *testing.T) {
	t.Parallel()
	var broken, stop atomic.Bool
	s := failingStore(t, Options{}, func(op int32) bool { return broken.Load() && op != opClose })
	var requests sync.WaitGroup
	var answers atomic.Int64
	for range 64 {
		requests.Go(func() {
			for !stop.Load() {
				_ = s.call(func() error { _, _, err := s.conn.Exists("/"); return err })
				answers.Add(1)
			}
		})
	}
	locktest.Eventually(t, "requests are answered", func() bool { return answers.Load() > 64 })
	context.AfterFunc(s.life, func() { broken.Store(true) })
	within(t, "Close", s.Close)
	stop.Store(true)
	requests.Wait()
}

// So would a login that fails on a new connection.
func TestSession_ContinuesWhenALoginFails(t *testing.T) {
	t.Parallel()
	var once atomic.Bool
	s := failingStore(t, Options{Login: "user:password"}, func(op int32) bool { return op == opSetAuth && once.CompareAndSwap(true, false) })
	once.Store(true)
	s.client.mu.Lock()
	l := s.link
	s.client.mu.Unlock()
	_ = l.Close()
	within(t, "TryAcquire", func() {
		if l, err := s.TryAcquire(t.Context(), "k"); err != nil {
			t.Error(err)
		} else if err := s.Release(t.Context(), l); err != nil {
			t.Error(err)
		}
	})
	if once.Load() {
		t.Error("no login failed")
	}
	within(t, "Close", s.Close)
}
