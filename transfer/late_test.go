package transfer_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"shop/locking"
	"shop/transfer"
)

// Kleppmann's packet: sent in time, delivered long after, when its sender has
// gone: B3. What etcd-unfenced sends is its whole write; what etcd-fenced sends
// first is the guard.
func TestFence_APacketThatArrivesLate(t *testing.T) {
	t.Parallel()
	for strategy, balance := range map[string]int64{"etcd-unfenced": 69, "etcd-fenced": 79} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			px := newProxy(t, b.url)
			held, deliver, delivered := make(chan struct{}), make(chan struct{}), make(chan struct{})
			arm := func(context.Context) {
				px.arm(func(request []byte, client, server net.Conn) {
					close(held)
					<-deliver
					if strategy == "etcd-unfenced" {
						px.refuse() // or he runs it again before it is delivered
					}
					client.Close()
					_, _ = server.Write(request)
					close(delivered)
				})
			}
			cfg := b.replica()
			cfg.Pool = newPool(t, px.url)
			warm, _ := b.another(cfg)
			b.transferred(warm.Transfer(t.Context(), ask(p.alice), p.move(1))) // so that all statements are prepared
			if strategy == "etcd-fenced" {
				cfg.Failpoint = onceAt(transfer.AfterBegin, arm)
			} else {
				cfg.Encode = encodeThen(arm)
			}
			slow, _ := b.another(cfg)
			old := beside(func() (transfer.Reply, error) { return slow.Transfer(t.Context(), ask(p.alice), p.move(30)) })
			<-held
			b.steal(t)
			b.transferred(b.Transfer(t.Context(), ask(p.alice), p.move(20)))
			close(deliver)
			<-delivered
			if strategy == "etcd-fenced" {
				if late := <-old; !errors.Is(late.err, locking.ErrStale) {
					t.Errorf("%s, %v, want ErrStale", late.reply.Body, late.err)
				}
				b.mustHold()
			} else {
				eventually(t, "the late write is committed", func() bool { return b.posted() == 3 })
				if late := <-old; !errors.Is(late.err, locking.ErrOutcomeUnknown) {
					t.Errorf("%s, %v, want ErrOutcomeUnknown", late.reply.Body, late.err)
				}
				b.mustBreak()
			}
			b.mustHave(p.a, balance, 0)
		})
	}
}

// encodeThen is an Encode that does something, once, just before the last round trip, where COMMIT is.
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
