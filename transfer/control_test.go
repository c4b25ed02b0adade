// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// mustBreak fails the test if a negative control broke nothing.
func (b *bank) mustBreak() {
	b.T.Helper()
	if len(b.broken()) == 0 {
		b.T.Error("the invariants hold: the control did not fail, or the check is blind")
	}
}

func TestNaive_LosesOneOfTwoTransfersAtOnce(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "naive", Failpoint: locktest.MeetAt(2, transfer.AfterGuard)})
	p := b.pair(100, 0)
	one := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
	two := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(p.alice), p.move(20)) })
	b.transferred((<-one).Pair())
	b.transferred((<-two).Pair())
	b.mustBreak()
}

func TestNaive_SpendsTheSameMoneyTwice(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "naive", Failpoint: locktest.MeetAt(2, transfer.AfterGuard)})
	p := b.pair(100, 0)
	carol := b.account(uuid.New(), 0)
	one := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(p.alice), p.move(100)) })
	two := locktest.Beside(func() (transfer.Reply, error) {
		return b.Transfer(t.Context(), newRequest(p.alice), euros(p.a, carol, 100))
	})
	b.transferred((<-one).Pair())
	b.transferred((<-two).Pair())
	b.mustHave(p.a, 0, 0)
	b.mustHave(p.b, 100, 0)
	b.mustHave(carol, 100, 0)
	b.mustBreak()
}

// The positive control: the fence is needed only when a holder is late.
func TestEtcdUnfenced_HoldsWhileNoHolderIsLate(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-unfenced"})
	b.churn(8, 60, 2)
	b.mustHold()
}

// late stops a first holder at a step, deletes its locks, lets a second one finish, and then
// the first one go on.
func (b *bank) late(t *testing.T, step transfer.Step, nth int32, first, second transfer.Move, client uuid.UUID) (s *stopped, old outcome) {
	t.Helper()
	s = b.stopAtNth(nth, step)
	done := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(client), first) })
	s.await()
	b.steal(t)
	b.transferred(b.Transfer(t.Context(), newRequest(client), second))
	s.goOn()
	return s, <-done
}

// The holder is late between its guarded read and its write. The strategies differ only in the
// predicate of that write.
func TestEtcdUnfenced_ALateHolderOverwritesTheNextOneUnlessItsWriteComparesFences(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-unfenced", "etcd-fence-only"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 50)
			s, old := b.late(t, transfer.AfterGuard, 1, p.move(30), p.move(20), p.alice)
			if strategy == "etcd-fence-only" {
				b.mustBeStale(s, old)
				b.mustHave(p.a, 80, 0)
				return
			}
			b.transferred(old.Pair())
			b.mustHave(p.a, 70, 0) // 50 would be right
			b.mustBreak()
		})
	}
}

// The lock is per transfer, so two transfers to one account hold theirs at the same time, and
// one overwrites the other's credit. Neither is late.
func TestLeaseIDFence_LosesAConcurrentCreditOfThePayee(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "lease-id-fence", Failpoint: locktest.MeetAt(2, transfer.AfterGuard)})
	alice, bob := uuid.New(), uuid.New()
	from, also, to := b.account(alice, 100), b.account(bob, 100), b.account(uuid.New(), 0)
	one := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(alice), euros(from, to, 30)) })
	two := locktest.Beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), newRequest(bob), euros(also, to, 20)) })
	b.transferred((<-one).Pair())
	b.transferred((<-two).Pair())
	b.mustBreak()
}

// Three members, with a replica on each: the lease ids of one member are always lower than
// another's. No holder is late here, and nothing else writes.
func TestLeaseIDFence_RefusesHoldersThatAreNotLate(t *testing.T) {
	locktest.Slow(t, "three etcd")
	t.Parallel()
	members := servertest.StartEtcd(t, 3)
	b := open(t, transfer.Config{Strategy: "lease-id-fence"})
	p := b.pair(1000, 0)
	prefix := uuid.NewString()
	refused, moved := 0, 0
	for range 4 {
		for _, member := range members {
			cfg := b.cfg
			cfg.LeaseIDs = leaseIDs(t, connect(t, member.Addr), prefix)
			replica, _ := b.another(cfg)
			req := newRequest(p.alice)
			_, err := replica.Transfer(t.Context(), req, p.move(1))
			for errors.Is(err, locking.ErrBusy) { // the members elect a leader
				_, err = replica.Transfer(t.Context(), req, p.move(1))
			}
			switch {
			case err == nil:
				moved++
			case errors.Is(err, locking.ErrStale):
				refused++
			default:
				t.Error(err)
			}
		}
	}
	t.Logf("%d rightful holders of %d were refused", refused, refused+moved)
	if refused == 0 || moved == 0 {
		t.Errorf("%d refused, %d moved: want both", refused, moved)
	}
	b.mustHave(p.b, int64(moved), 0)
}

// The published transfer: its answer is lost, and the same request is sent again. It gets the lock again, with a newer token.
func TestTokenPerTransfer_PaysAgainWhenTheRequestIsRepeated(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "token-per-transfer"})
	p := b.pair(100, 0)
	req := newRequest(p.alice)
	b.transferred(b.Transfer(t.Context(), req, p.move(30)))
	b.transferred(b.Transfer(t.Context(), req, p.move(30)))
	b.mustHave(p.a, 40, 0) // 70 would be right
	found, err := transfer.Audit(t.Context(), b.Pool)
	if err != nil || found["I-ONCE"] != 1 || found["T1"]+found["T2"]+found["T3"] != 0 {
		t.Errorf("the audit found %v, %v: want I-ONCE alone", found, err)
	}
}

// Its token does what a token does: a holder that is late changes nothing.
func TestTokenPerTransfer_RefusesALateHolderOfTheSameTransfer(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "token-per-transfer"})
	p := b.pair(100, 0)
	req := newRequest(p.alice)
	s := b.stopAt(transfer.AfterAcquire)
	old := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), req, p.move(30)) })
	s.await()
	b.steal(t)
	b.transferred(b.Transfer(t.Context(), req, p.move(30)))
	s.goOn()
	if _, err := (<-old).Pair(); !errors.Is(err, locking.ErrStale) {
		t.Errorf("the late holder: %v, want ErrStale", err)
	}
	b.mustHave(p.a, 70, 0)
}
