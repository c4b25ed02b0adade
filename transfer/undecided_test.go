// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/servertest"
	"shop/transfer"
)

func TestCommit_ThatCannotBeDecidedIsUnknownAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b, p, px, start := armed(t, strategy, func(px *servertest.Proxy) {
				px.OnRequest(next(func(request []byte, client, server net.Conn) bool {
					px.Refuse()
					return servertest.Cuts["reply lost"](request, client, server)
				}))
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			req := newRequest(p.alice)
			start.Store(true)
			_, err := b.Transfer(ctx, req, p.move(30))
			if !errors.Is(err, locking.ErrOutcomeUnknown) {
				t.Fatalf("%v, want ErrOutcomeUnknown", err)
			}
			for _, lie := range []error{locking.ErrBusy, locking.ErrLost, locking.ErrStale, context.Canceled, context.DeadlineExceeded, transfer.ErrNotFound} {
				if errors.Is(err, lie) {
					t.Errorf("%v also matches %v", err, lie)
				}
			}
			px.Up(t)
			reply, err := b.with("row").Transfer(t.Context(), req, p.move(30)) // row, because etcd-fenced's lease is left to expire
			if err != nil || reply.Status != 201 {
				t.Errorf("the same key later: %+v, %v", reply, err)
			}
			b.mustHave(p.a, 968, 0)
			b.mustHold()
		})
	}
}

// The lease ends while the outcome of the COMMIT is unknown. The next grant, with a newer fence
// and the same key, resolves it.
func TestCommit_IsDecidedEvenIfTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for name, cut := range servertest.Cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, p, px, start := armed(t, "etcd-fenced", nil)
			b.locks.ttl = 3 * time.Second // so that the loss is soon noticed
			cfg := b.replica()
			cfg.Lock.MaxWait = 10 * time.Second // if MaxWait ended first, its waiter would remain for a TTL
			cfg.Lock.Observer = func(e locking.Event) {
				if e.Kind == locking.Lost {
					px.Up(t)
				}
			}
			encode := cfg.Encode
			cfg.Encode = func(tr transfer.Transfer, refusal error) (transfer.Reply, error) {
				if start.CompareAndSwap(true, false) {
					px.OnRequest(next(func(request []byte, client, server net.Conn) bool {
						if err := b.locks.steal(context.Background()); err != nil {
							t.Error(err)
						}
						px.Refuse()
						return cut(request, client, server)
					}))
				}
				return encode(tr, refusal)
			}
			b.Service, b.events = b.another(cfg)
			start.Store(true)
			reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(30))
			b.mustBeResolved(reply, err, 1)
			b.mustHave(p.a, 968, 0)
		})
	}
}
