// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"testing"

	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// mustBeStale checks that the fence refused the late holder, and that nothing of it is stored.
func (b *bank) mustBeStale(s *stopped, old outcome) {
	b.T.Helper()
	var stale *transfer.StaleError
	if !errors.Is(old.Err, locking.ErrStale) || !errors.As(old.Err, &stale) || stale.Fence >= stale.Seen {
		b.T.Errorf("the late holder: %s, %v, want ErrStale", old.Reply.Body, old.Err)
	}
	if n := s.events.Of(transfer.FenceRefused); n != 1 {
		b.T.Errorf("%d refusals counted, want 1", n)
	}
	if transfers, keys := b.Number(`SELECT count(*) FROM transfers`), b.Number(`SELECT count(*) FROM idempotency_keys`); transfers != 1 || keys != 1 {
		b.T.Errorf("%d transfers, %d keys, want 1 and 1: something of the late holder is stored", transfers, keys)
	}
	b.mustHold()
}

// The old holder writes after the next grant: B1, B11.
func TestFence_RefusesTheLateWriterAndStoresNothingOfIt(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only"} {
		for _, step := range []transfer.Step{transfer.AfterAcquire, transfer.AfterBegin} {
			t.Run(strategy+"/"+string(step), func(t *testing.T) {
				t.Parallel()
				b := open(t, transfer.Config{Strategy: strategy})
				p := b.pair(100, 50)
				s, old := b.late(t, step, 1, p.move(30), p.move(20), p.alice)
				b.mustBeStale(s, old)
				b.mustHave(p.a, 80, 0)
				b.mustHave(p.b, 70, 0)
			})
		}
	}
}

// The late holder shares only one account with the next one. Each of the two rows can refuse
// the whole transfer, at the read and at the write.
func TestFence_OneSharedAccountIsEnough(t *testing.T) {
	t.Parallel()
	for strategy, step := range map[string]transfer.Step{"etcd-fenced": transfer.AfterAcquire, "etcd-fence-only": transfer.AfterGuard} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			for range 4 { // the shared account is sometimes the lower one, sometimes the higher
				b := open(t, transfer.Config{Strategy: strategy})
				p := b.pair(100, 50)
				carol := b.account(p.alice, 100)
				s, old := b.late(t, step, 1, p.move(30), euros(carol, p.b, 20), p.alice)
				b.mustBeStale(s, old)
				b.mustHave(p.a, 100, 0)
				b.mustHave(p.b, 70, 0)
			}
		})
	}
}

// A guard at the write alone is not enough. The next holder has read, but not written. Without
// its guard at the read, no row would have its fence yet, and a late write would pass that the
// next holder has not seen.
func TestFence_IsComparedAtTheReadToo(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fence-only"})
	p := b.pair(100, 50)
	old := b.stopAtNth(2, transfer.AfterBegin) // before the guard at the write
	oldDone := locktest.Beside(func() (transfer.Reply, error) { return old.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
	old.await()
	b.steal(t)
	next := b.stopAt(transfer.AfterGuard) // after the guard at the read
	nextDone := locktest.Beside(func() (transfer.Reply, error) { return next.Transfer(t.Context(), newRequest(p.alice), p.move(20)) })
	next.await()
	old.goOn()
	late := <-oldDone
	next.goOn()
	b.transferred((<-nextDone).Pair())
	b.mustBeStale(old, late)
	b.mustHave(p.a, 80, 0)
}

// A holder that is paused after the guard has the rows locked. A holder with a newer fence
// waits at the row, and both transfers are right: B2.
func TestFence_AfterTheGuardTheNextHolderWaitsForTheRowLock(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 50)
	s := b.stopAt(transfer.AfterGuard)
	first := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
	s.await()
	b.steal(t)
	second := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(p.alice), p.move(20)) })
	locktest.Eventually(t, "the second waits at the row", func() bool { return b.Waiting() > 0 })
	s.goOn()
	b.transferred((<-first).Pair())
	b.transferred((<-second).Pair())
	b.mustHave(p.a, 50, 0)
	b.mustHold()
}

// A holder is stopped after the guard for longer than a transaction may be idle. PostgreSQL
// ends its transaction, its COMMIT fails, and it runs again.
func TestFence_AStoppedHolderDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 50)
	cfg := b.cfg
	cfg.Pool = pgtest.Pool(t, b.URL, "idle_in_transaction_session_timeout=200")
	b.cfg = cfg
	s := b.stopAt(transfer.AfterGuard)
	first := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
	s.await()
	b.steal(t)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(20)))
	s.goOn()
	if old := <-first; !errors.Is(old.Err, locking.ErrStale) {
		t.Errorf("%s, %v, want ErrStale for the retry with the same old fence", old.Reply.Body, old.Err)
	}
	b.mustHave(p.a, 80, 0)
	b.mustHold()
}

// Between the read and the write of etcd-fence-only, another strategy writes. The fence detects
// a writer that carries one, as under etcd-fenced, and no other: that is the limit of a fence.
func TestFence_RefusesOnlyWritersThatSendAFence(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"etcd-fenced", "row"} {
		t.Run(between, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: "etcd-fence-only"})
			p := b.pair(100, 0)
			other := b.with(between)
			s := b.stopAt(transfer.AfterGuard)
			first := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(20)) })
			s.await()
			b.steal(t)
			b.transferred(other.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
			s.goOn()
			if between == "row" {
				b.transferred((<-first).Pair())
				b.mustBreak()
				return
			}
			b.mustBeStale(s, <-first)
			b.mustHave(p.a, 70, 0)
		})
	}
}

// The ledger has the fence under which each entry was written: the audit (T4) uses it.
func TestFence_IsInBothEntries(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only", "combined"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 50)
			mustCarry := func(what string, tr transfer.Transfer) {
				t.Helper()
				if n := b.Number(`
					SELECT count(*)
					FROM ledger_entries e JOIN accounts a ON a.id = e.account_id
					WHERE e.transfer_id = $1 AND e.fence = a.fence AND a.fence > 0
					AND e.fence_epoch = a.fence_epoch AND a.fence_epoch = $2`, tr.ID, epoch); n != 2 {
					t.Errorf("%s: %d entries have their account's fence and epoch, want 2", what, n)
				}
			}
			mustCarry("transfer", b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30))))
			mustCarry("back", b.transferred(b.Transfer(t.Context(), newRequest(p.bob), p.back(5))))
			hold := b.reserve(p, 20, transfer.HoldMax)
			mustCarry("post", b.transferred(b.Post(t.Context(), newRequest(p.alice), hold.ID, 7)))
			b.mustHold()
		})
	}
}
