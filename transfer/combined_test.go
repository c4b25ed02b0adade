// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/locktest"
	"shop/transfer"
)

// circle is three accounts of one owner, with 100 each.
func (s *bank) circle() (owner uuid.UUID, accounts []uuid.UUID) {
	owner = uuid.New()
	for range 3 {
		accounts = append(accounts, s.account(owner, 100))
	}
	return owner, accounts
}

// behind lets a transfer enter its transaction and stop there, while others queue up behind it, one after the
// other. open lets the first go on, and waits for all.
func (s *bank) behind(first func(), account uuid.UUID, others ...func()) (open func()) {
	s.T.Helper()
	var all sync.WaitGroup
	release := s.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, account)
	all.Go(first)
	locktest.Eventually(s.T, "the first transfer waits for the row", func() bool { return s.Waiting() == 1 })
	for n, other := range others {
		all.Go(other)
		locktest.Eventually(s.T, "a transfer waits behind it", func() bool { return s.Queued() == n+1 })
	}
	return func() {
		release()
		all.Wait()
	}
}

func TestCombined_ABatchMovesMoneyAroundACircleInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	setup := open(t, transfer.Config{})
	owner, accounts := setup.circle()
	s := openOn(setup.Database, transfer.Config{Strategy: "etcd-fenced", Hot: accounts}, sharedLocks(t))
	s.total = setup.total
	a, b, c := accounts[0], accounts[1], accounts[2]
	replies := make([]transfer.Reply, 5)
	move := func(n int, from, to uuid.UUID, amount int64) func() {
		return func() {
			var err error
			if replies[n], err = s.Transfer(t.Context(), newRequest(owner), euros(from, to, amount)); err != nil {
				t.Error(err)
			}
		}
	}
	// Warm up: the service learns who owns the accounts.
	for n, from := range accounts {
		move(0, from, accounts[(n+1)%3], 1)()
	}
	s.behind(move(0, a, b, 100), a,
		move(1, b, c, 200), // only with the 100 of the first
		move(2, c, a, 300), // only with the 200 of the second
		move(3, b, c, 1),   // b has nothing
		move(4, a, b, 50))()
	for n, reply := range replies {
		if isRefused(reply) != (n == 3) {
			t.Errorf("transfer %d: %s", n, reply.Body)
		}
	}
	s.mustHave(a, 250, 0)
	s.mustHave(b, 50, 0)
	s.mustHave(c, 0, 0)
	if n := s.Number(`SELECT count(DISTINCT created_at) FROM idempotency_keys`); n != 3+2 {
		t.Errorf("%d transactions, want 5: three to warm up, the first, and all that waited", n)
	}
	s.mustHold()
}

func TestCombined_OneKeyTwiceInABatchMovesOnce(t *testing.T) {
	t.Parallel()
	s := open(t, transfer.Config{Strategy: "combined"})
	p := s.pair(100, 0)
	if _, err := s.Transfer(t.Context(), newRequest(p.alice), p.move(1)); err != nil {
		t.Fatal(err)
	}
	req, other := newRequest(p.alice), newRequest(p.alice)
	other.Key, other.Fingerprint = req.Key, [32]byte{9}
	var replies [2]transfer.Reply
	var reused error
	s.behind(func() { _, _ = s.Transfer(t.Context(), newRequest(p.alice), p.move(1)) }, p.a,
		func() { replies[0], _ = s.Transfer(t.Context(), req, p.move(10)) },
		func() { replies[1], _ = s.Transfer(t.Context(), req, p.move(10)) },
		func() { _, reused = s.Transfer(t.Context(), other, p.move(11)) })()
	if len(replies[0].Body) == 0 || string(replies[0].Body) != string(replies[1].Body) {
		t.Errorf("%s and %s", replies[0].Body, replies[1].Body)
	}
	if !errors.Is(reused, idempotency.ErrKeyReused) {
		t.Errorf("%v, want ErrKeyReused", reused)
	}
	s.mustHave(p.a, 88, 0)
	s.mustHold()
}

// A hold may have expired, and its money may cover the transfer: that needs a transaction of its own.
func TestCombined_APayerWithHoldsIsDecidedAlone(t *testing.T) {
	t.Parallel()
	s := open(t, transfer.Config{Strategy: "combined"})
	p := s.pair(100, 0)
	s.reserve(p, 60, transfer.HoldMax)
	reply, err := s.Transfer(t.Context(), newRequest(p.alice), p.move(50))
	if err != nil || !isRefused(reply) {
		t.Errorf("%s, %v, want a refusal", reply.Body, err)
	}
	if reply, err := s.Transfer(t.Context(), newRequest(p.alice), p.move(40)); err != nil || isRefused(reply) {
		t.Errorf("%s, %v", reply.Body, err)
	}
	s.mustHave(p.a, 60, 60)
	s.mustHold()
}

// The transfers of a batch that Close ends did nothing, and do not go on alone.
func TestCombined_ABatchThatCloseEndsIsBusy(t *testing.T) {
	t.Parallel()
	s := open(t, transfer.Config{Strategy: "combined"})
	p := s.pair(100, 0)
	release := s.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, p.a)
	moved := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(50)) })
	locktest.Eventually(t, "the transfer waits for the row", func() bool { return s.Waiting() == 1 })
	s.Close()
	release()
	if o := <-moved; !errors.Is(o.Err, locking.ErrBusy) || errors.Is(o.Err, locking.ErrOutcomeUnknown) {
		t.Errorf("%s, %v, want ErrBusy", o.Reply.Body, o.Err)
	}
	s.mustHave(p.a, 100, 0)
	s.mustHold()
}

// The guard refuses a batch whose lease has been taken by another holder. The batch is then done under a newer fence.
func TestCombined_ALateBatchIsRefusedAndDoneUnderANewFence(t *testing.T) {
	t.Parallel()
	s := open(t, transfer.Config{Strategy: "combined"})
	p := s.pair(100, 50)
	slow, old := s.late(t, transfer.AfterBegin, 1, p.move(30), p.move(20), p.alice)
	s.transferred(old.Pair())
	if n := slow.events.Of(transfer.FenceRefused); n != 1 {
		t.Errorf("the fence refused %d batches, want the first of the late holder", n)
	}
	s.mustHave(p.a, 50, 0)
	s.mustHold() // in the order of the entries, the fences never decrease
}
