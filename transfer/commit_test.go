// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/transfer"
)

// next applies f to the next segment only.
func next(f servertest.Interceptor) servertest.Interceptor {
	first, _ := servertest.Nth(1, f)
	return first
}

// armed opens a bank behind a proxy. hurt is called once after start.Store(true), just before
// the last round trip of a request, which has COMMIT: Encode runs then.
func armed(t *testing.T, strategy string, hurt func(*servertest.Proxy)) (b *bank, p pair, px *servertest.Proxy, start *atomic.Bool) {
	t.Helper()
	b = open(t, transfer.Config{Strategy: strategy})
	p = b.pair(1000, 0)
	px, through := servertest.ProxyURL(t, b.URL)
	start = &atomic.Bool{}
	cfg := b.cfg
	cfg.Pool = pgtest.Pool(t, through)
	cfg.Encode = func(tr transfer.Transfer, refusal error) (transfer.Reply, error) {
		if start.CompareAndSwap(true, false) {
			hurt(px)
		}
		if refusal != nil {
			return transfer.Reply{Status: 409, Body: []byte(refusal.Error())}, nil
		}
		return transfer.Reply{Status: 201, Body: []byte(tr.ID.String())}, nil
	}
	b.cfg = cfg
	b.Service, b.events = b.another(cfg)
	b.warm(p)
	return b, p, px, start
}

// warm moves 2, so that all statements are prepared on the connection: COMMIT is not in the message that prepares them.
func (b *bank) warm(p pair) {
	b.T.Helper()
	if _, err := b.Transfer(b.T.Context(), newRequest(p.alice), p.move(1)); err != nil {
		b.T.Fatal(err)
	}
	hold := b.held(p, 1)
	if _, err := b.Post(b.T.Context(), newRequest(p.alice), hold.ID, 0); err != nil {
		b.T.Fatal(err)
	}
}

// held is reserve, for any Encode. Of the transfer it returns the id only.
func (b *bank) held(p pair, amount int64) (tr transfer.Transfer) {
	b.T.Helper()
	req := newRequest(p.alice)
	if _, err := b.Reserve(b.T.Context(), req, p.move(amount), time.Hour); err != nil {
		b.T.Fatal(err)
	}
	err := b.Pool.QueryRow(b.T.Context(), `SELECT id FROM transfers WHERE idempotency_key = $1`, req.Key).Scan(&tr.ID)
	if err != nil {
		b.T.Fatal(err)
	}
	return tr
}

// mustBeResolved checks that the fault landed so many times, and that each was resolved.
func (b *bank) mustBeResolved(reply transfer.Reply, err error, times int) {
	b.T.Helper()
	if err != nil || reply.Status != 201 {
		b.T.Fatalf("%+v, %v", reply, err)
	}
	if a, r := b.events.Of(transfer.Ambiguous), b.events.Of(transfer.Resolved); a != times || r != times {
		b.T.Errorf("%d ambiguous, %d resolved, want %d of each", a, r, times)
	}
	b.mustHold()
}

// If the second attempt of a Post finds the hold ended, the key shows whether the first one did it.
func TestCommit_WithoutAnswerIsDecidedByTheSameKey(t *testing.T) {
	t.Parallel()
	for name, cut := range servertest.Cuts {
		for _, strategy := range all() {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				b, p, _, start := armed(t, strategy, func(px *servertest.Proxy) { px.OnRequest(next(cut)) })
				start.Store(true)
				reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(30))
				b.mustBeResolved(reply, err, 1)
				b.mustHave(p.a, 968, 0)
				b.warm(p) // a new connection
				hold := b.held(p, 30)
				start.Store(true)
				reply, err = b.Post(t.Context(), newRequest(p.alice), hold.ID, 20)
				b.mustBeResolved(reply, err, 2)
				b.mustHave(p.a, 946, 0)
			})
		}
	}
}

// The whole write of etcd-fence-only is one message. If it arrives after the second attempt, its
// fence passes, since it is the same, but its key is taken.
func TestCommit_ThatArrivesAfterItsSecondAttemptIsRefusedByTheKey(t *testing.T) {
	t.Parallel()
	ready, refused := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(ready) })
	b, p, px, start := armed(t, "etcd-fence-only", func(px *servertest.Proxy) {
		px.OnRequest(next(func(request []byte, client, server net.Conn) bool {
			request = bytes.Clone(request)
			client.Close()
			<-ready
			_, _ = server.Write(request)
			return false
		}))
	})
	t.Cleanup(arrive)
	start.Store(true)
	reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(30))
	b.mustBeResolved(reply, err, 1)
	px.OnReply(next(func(answer []byte, _, _ net.Conn) bool {
		if !bytes.Contains(answer, []byte("23505")) {
			t.Errorf("the late write was answered %q, want unique_violation", answer)
		}
		close(refused)
		return true
	}))
	arrive()
	await(t, "the late write is refused", refused)
	b.mustHave(p.a, 968, 0)
	b.mustHold()
}
