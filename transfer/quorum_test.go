// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// mustBeUnavailable checks that a transfer gets UnavailableError, and returns how long it waited.
func (b *bank) mustBeUnavailable(svc *transfer.Service, p pair) (waited time.Duration) {
	b.T.Helper()
	start := time.Now()
	_, err := svc.Transfer(b.T.Context(), newRequest(p.alice), p.move(1))
	var down *transfer.UnavailableError
	if !errors.As(err, &down) || !errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
		b.T.Errorf("%v, want UnavailableError, which is ErrBusy to a client", err)
	}
	return time.Since(start)
}

// etcd is paused, which looks like a lost quorum, or killed. No new transfer begins, one that
// holds its locks finishes, and the service recovers by itself.
func TestEtcd_WithoutItNewTransfersAreBusyAndThoseUnderWayFinish(t *testing.T) {
	locktest.Slow(t, "it stops etcd")
	t.Parallel()
	for name, f := range map[string]struct {
		end, back func(*servertest.Server)
	}{
		"silent": {(*servertest.Server).Pause, (*servertest.Server).Resume},
		"gone":   {(*servertest.Server).Kill, (*servertest.Server).Start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartEtcd(t, 1)[0]
			b := openWith(t, transfer.Config{
				Strategy: "etcd-fenced",
				Lock:     locking.Options{MaxWait: time.Second},
			}, locksAt(t, server.Addr))
			p := b.pair(100, 0)
			svc, events := b.another(b.cfg)
			s := b.stopAt(transfer.AfterAcquire)
			underWay := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
			s.await()
			f.end(server)
			if waited := b.mustBeUnavailable(svc, p); waited > 3*time.Second { // the first one opens the breaker
				t.Errorf("ErrBusy after %v, want MaxWait", waited)
			}
			// The others get ErrBusy at once, except for one probe every 250 ms, which may be this one.
			waited, tries := time.Hour, 0
			for ; waited >= time.Second && tries < 5; tries++ {
				waited = b.mustBeUnavailable(svc, p)
			}
			if waited >= time.Second {
				t.Errorf("each of %d waited for MaxWait", tries)
			}
			if n := events.Of(transfer.Unavailable); n != 1+tries {
				t.Errorf("%d counted, want %d", n, 1+tries)
			}
			s.goOn()
			b.transferred((<-underWay).Pair())
			b.mustHave(p.a, 70, 0)
			f.back(server)
			locktest.Eventually(t, "the service recovers", func() bool {
				_, err := svc.Transfer(t.Context(), newRequest(p.alice), p.move(1))
				return err == nil
			})
			b.mustHold()
		})
	}
}

// counting is a lock store that counts the requests to acquire.
type counting struct {
	*etcdlock.Store
	requests *atomic.Int64
}

func (c counting) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	c.requests.Add(1)
	return c.Store.TryAcquire(ctx, keys...)
}

func (c counting) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	c.requests.Add(1)
	return c.Store.Acquire(ctx, keys...)
}

// One request every 250 ms probes etcd. The others do not wait for a time-out.
func TestEtcd_WhileItIsGoneOneRequestProbesAndTheOthersAreBusyAtOnce(t *testing.T) {
	locktest.Slow(t, "it stops etcd")
	t.Parallel()
	server := servertest.StartEtcd(t, 1)[0]
	at := locksAt(t, server.Addr)
	locks := counting{at.store(t), &atomic.Int64{}}
	b := openWith(t, transfer.Config{
		Strategy: "etcd-fenced", Locks: locks,
		Lock: locking.Options{MaxWait: 50 * time.Millisecond}, // shorter than the interval of probes
	}, at)
	p := b.pair(100, 0)
	server.Pause()
	b.mustBeUnavailable(b.Service, p)
	locks.requests.Store(0)
	start, refused := time.Now(), int64(0)
	for ; refused < 40 || locks.requests.Load() < 2; refused++ {
		if _, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(1)); !errors.Is(err, locking.ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
	}
	requests, took := locks.requests.Load(), time.Since(start)
	if most := 1 + int64(took/(250*time.Millisecond)); requests > most {
		t.Errorf("%d of %d requests reached etcd in %v, want at most %d", requests, refused, took, most)
	}
	b.mustHave(p.a, 100, 0)
}
