// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// Kleppmann's late packet (B3): it is sent in time, and delivered after its sender has gone. That
// of etcd-unfenced and etcd-fence-only is the whole write, COMMIT included, and differs in one
// predicate. That of etcd-fenced is the guard.
func TestFence_RefusesAPacketThatArrivesLate(t *testing.T) {
	t.Parallel()
	for strategy, c := range map[string]struct {
		balance int64
		err     error
	}{
		"etcd-unfenced":   {69, locking.ErrOutcomeUnknown},
		"etcd-fence-only": {79, locking.ErrOutcomeUnknown},
		"etcd-fenced":     {79, locking.ErrStale},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			px, through := servertest.ProxyURL(t, b.URL)
			late := newPacket(t)
			arm := func(context.Context) {
				if strategy != "etcd-fenced" {
					late.beforeDelivery = px.Refuse // otherwise the request is retried before its packet is delivered
				}
				late.holdNext(px)
			}
			cfg := b.replica()
			settings, err := pgtx.PoolConfig(through)
			if err != nil {
				t.Fatal(err)
			}
			settings.MaxConns = 1                                                          // no other connection is left when the proxy refuses
			settings.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "0" // the packet may be held for longer
			cfg.Pool = pgtest.Open(t, settings)
			warm, _ := b.another(cfg)
			b.transferred(warm.Transfer(t.Context(), newRequest(p.alice), p.move(1))) // so that all statements are prepared
			if strategy == "etcd-fenced" {
				cfg.Failpoint = locktest.OnceAt(transfer.AfterBegin, arm)
			} else {
				cfg.Encode = encodeThen(arm)
			}
			slow, _ := b.another(cfg)
			old := locktest.Beside(func() (transfer.Reply, error) { return slow.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
			await(t, "the packet is held", late.held)
			b.steal(t)
			b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(20)))
			late.deliver()
			await(t, "the packet is answered", late.answered)
			if got := <-old; !errors.Is(got.Err, c.err) {
				t.Errorf("%s, %v, want %v", got.Reply.Body, got.Err, c.err)
			}
			if strategy == "etcd-unfenced" {
				b.mustBreak()
			} else {
				b.mustHold()
			}
			b.mustHave(p.a, c.balance, 0)
		})
	}
}

// packet is a request that a proxy holds until deliver, and delivers after its sender has gone.
type packet struct {
	held, released, answered chan struct{}
	deliver                  func()
	beforeDelivery           func() // may be nil
}

func newPacket(t *testing.T) *packet {
	p := &packet{held: make(chan struct{}), released: make(chan struct{}), answered: make(chan struct{})}
	p.deliver = sync.OnceFunc(func() { close(p.released) })
	t.Cleanup(p.deliver) // runs before the cleanup of the proxy, which waits for its connections
	return p
}

// holdNext holds the next request through px.
func (p *packet) holdNext(px *servertest.Proxy) {
	px.OnRequest(next(func(request []byte, client, server net.Conn) bool {
		request = bytes.Clone(request)
		close(p.held)
		<-p.released
		if p.beforeDelivery != nil {
			p.beforeDelivery()
		}
		var answered sync.Once
		px.OnReply(func(_ []byte, _, from net.Conn) bool { // only its own reply: a retry has another connection
			if from == server {
				answered.Do(func() { close(p.answered) })
			}
			return from != server
		})
		_, _ = server.Write(request)
		client.Close()
		return false
	}))
}

// encodeThen returns an Encode that calls do once, just before the last round trip, which has COMMIT.
func encodeThen(do func(context.Context)) transfer.Encode {
	var done atomic.Bool
	return func(tr transfer.Transfer, refusal error) (transfer.Reply, error) {
		if done.CompareAndSwap(false, true) {
			do(context.Background())
		}
		if refusal != nil {
			return transfer.Reply{Status: 409, Body: []byte(refusal.Error())}, nil
		}
		return transfer.Reply{Status: 201, Body: []byte(tr.ID.String())}, nil
	}
}
