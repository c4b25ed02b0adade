// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// Rows are locked by id, in both directions of payment, and in whatever order the table has
// them: a transfer that waits for the lower row does not hold the higher one. Index scans are
// off, so that PostgreSQL reads the table from its beginning, where the higher row is.
func TestTransfer_LocksTheLowerRowFirst(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		for _, payer := range []string{"lower", "higher"} {
			t.Run(strategy+"/"+payer, func(t *testing.T) {
				t.Parallel()
				b := open(t, transfer.Config{Strategy: strategy})
				owner, ids := uuid.New(), [2]uuid.UUID{uuid.New(), uuid.New()}
				if bytes.Compare(ids[0][:], ids[1][:]) < 0 {
					ids[0], ids[1] = ids[1], ids[0]
				}
				for _, id := range ids {
					if _, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Owner: owner, Currency: "EUR", Opening: 100}); err != nil {
						t.Fatal(err)
					}
				}
				b.total = 200
				higher, lower := ids[0], ids[1]
				m := euros(lower, higher, 30)
				if payer == "higher" {
					m = euros(higher, lower, 30)
				}
				cfg := b.cfg
				cfg.Pool = pgtest.Pool(t, b.URL, "enable_indexscan=off", "enable_bitmapscan=off")
				svc, _ := b.another(cfg)
				letGo := b.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, lower)
				defer letGo()
				done := locktest.Beside(func() (transfer.Reply, error) { return svc.Transfer(t.Context(), newRequest(owner), m) })
				locktest.Eventually(t, "the transfer waits for the lower row", func() bool { return b.Waiting() > 0 })
				if b.Number(`SELECT count(*) FROM (SELECT FROM accounts WHERE id = $1 FOR UPDATE SKIP LOCKED) free`, higher) != 1 {
					t.Error("the transfer waits for the lower row and holds the higher one")
				}
				letGo()
				b.transferred((<-done).Pair())
				b.mustHold()
			})
		}
	}
}

// These strategies lock their rows only in the second transaction, in one message with the
// key. In it too the rows come before the key.
func TestEtcdUnfenced_LocksTheRowsBeforeTheKey(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-unfenced", "etcd-fence-only"} {
		b := open(t, transfer.Config{Strategy: strategy})
		p := b.pair(100, 0)
		s, req := b.stopAt(transfer.AfterGuard), newRequest(p.alice)
		done := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), req, p.move(30)) })
		s.await()
		letGo := b.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, p.a)
		s.goOn()
		locktest.Eventually(t, "the write waits for the row", func() bool { return b.Waiting() > 0 })
		b.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:])() // does not wait
		letGo()
		b.transferred((<-done).Pair())
		b.mustHold()
	}
}
