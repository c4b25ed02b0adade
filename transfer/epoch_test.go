// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// wiped returns a Service on the bank with a new etcd, whose revisions begin again.
func (b *bank) wiped(t *testing.T, now string) *transfer.Service {
	t.Helper()
	cfg := b.cfg
	cfg.Locks, cfg.Epoch = locksAt(t, servertest.StartEtcd(t, 1)[0].Addr).store(t), now
	svc, _ := b.another(cfg)
	return svc
}

func TestEpoch_AWipedEtcdIsRefusedUntilAnOperatorBeginsANewEpoch(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			for range 3 {
				b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
			}
			svc := b.wiped(t, "another-cluster")   // before the holder stops: an etcd may take longer to start than a request may last
			old := b.stopAt(transfer.AfterAcquire) // holds a lease of the old etcd
			late := locktest.Beside(func() (transfer.Reply, error) { return old.Transfer(t.Context(), newRequest(p.alice), p.move(50)) })
			old.await()

			req := newRequest(p.alice)
			_, err := svc.Transfer(t.Context(), req, p.move(10))
			var foreign *transfer.EpochError
			if !errors.Is(err, transfer.ErrEpoch) || !errors.As(err, &foreign) || foreign.Seen != epoch || foreign.Epoch != "another-cluster" {
				t.Fatalf("%v, want EpochError", err)
			}
			if errors.Is(err, locking.ErrStale) || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "epoch") {
				t.Errorf("%v: want an error that is not retried, and names the epoch", err)
			}
			if n, err := transfer.NewEpoch(t.Context(), b.Pool, epoch, "another-cluster"); n != 2 || err != nil {
				t.Errorf("NewEpoch: %d accounts, %v, want 2", n, err)
			}
			b.transferred(svc.Transfer(t.Context(), req, p.move(10)))

			old.goOn()
			if o := <-late; !errors.Is(o.Err, transfer.ErrEpoch) {
				t.Errorf("the holder of the old epoch: %s, %v, want ErrEpoch", o.Reply.Body, o.Err)
			}
			b.mustHave(p.a, 87, 0)
			b.mustHold()
		})
	}
}

// Fences begin again although the epoch is the same. The account refuses them for ever, which
// is safe, and the error has both fences.
func TestEpoch_LowerFencesInTheSameEpochStayStale(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	b.Exec(`UPDATE accounts SET fence = 1000000`)
	svc := b.wiped(t, epoch)
	_, err := svc.Transfer(t.Context(), newRequest(p.alice), p.move(1))
	var stale *transfer.StaleError
	if !errors.As(err, &stale) || stale.Seen != 1000000 || stale.Fence >= stale.Seen {
		t.Errorf("%v, want StaleError with both numbers", err)
	}
	b.mustHave(p.a, 99, 0)
}

func TestNewEpoch_ChangesOnlyAccountsOfTheOldEpoch(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	cfg := b.cfg
	cfg.Epoch = "third"
	third, _ := b.another(cfg)
	c := transfer.Account{ID: uuid.New(), Owner: p.alice, Currency: "EUR"}
	if _, err := third.OpenAccount(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][2]string{{epoch, ""}, {epoch, epoch}} {
		if _, err := transfer.NewEpoch(t.Context(), b.Pool, names[0], names[1]); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("from %q to %q: %v, want ErrInvalid", names[0], names[1], err)
		}
	}
	if n, err := transfer.NewEpoch(t.Context(), b.Pool, "misspelled", "new"); n != 0 || err != nil {
		t.Errorf("%d, %v, want none", n, err)
	}
	if n, err := transfer.NewEpoch(t.Context(), b.Pool, epoch, "new"); n != 2 || err != nil {
		t.Errorf("%d, %v, want 2", n, err)
	}
	if n, err := transfer.NewEpoch(t.Context(), b.Pool, epoch, "new"); n != 0 || err != nil {
		t.Errorf("again: %d, %v, want none", n, err)
	}
	epochs, err := transfer.Epochs(t.Context(), b.Pool)
	if err != nil || len(epochs) != 2 || epochs["new"] != 2 || epochs["third"] != 1 {
		t.Errorf("%v, %v", epochs, err)
	}
	if n := b.Number(`SELECT sum(accounts)::bigint FROM fence_epochs WHERE was = $1 AND epoch = 'new'`, epoch); n != 2 {
		t.Errorf("%d on record, want 2", n)
	}
}

// An account that was opened or used without fences takes the epoch of its first fence.
func TestEpoch_AnAccountWithoutAnEpochTakesTheFirst(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	b.Exec(`UPDATE accounts SET fence_epoch = ''`)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(1))) // row
	b.transferred(b.with("etcd-fenced").Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	if n := b.Number(`SELECT count(*) FROM accounts WHERE fence_epoch = $1 AND fence > 0`, epoch); n != 2 {
		t.Errorf("%d accounts fenced, want 2", n)
	}
	b.mustHold()
}

// open opens accounts with ids in order. The last of them are of the epoch "old".
func (b *bank) openMany(accounts, old int) {
	b.T.Helper()
	b.Exec(`
		INSERT INTO accounts (id, owner_id, currency, opening, balance, fence_epoch)
		SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, gen_random_uuid(), 'EUR', 0, 0,
		       CASE WHEN i > $1 - $2 THEN 'old' ELSE 'new' END
		FROM generate_series(1, $1::int) AS i`, accounts, old)
	b.Exec(`ANALYZE accounts`)
}

// Most accounts were moved by a NewEpoch that was interrupted. A page of the accounts that are left would read all of
// these first, and with millions of them exceed the time limit of a statement.
func TestNewEpoch_APageReadsNoMoreThanItsAccounts(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	const accounts, old = 20_000, 2_500
	b.openMany(accounts, old)
	pool, sent := b.Recording()
	if n, err := transfer.NewEpoch(t.Context(), pool, "old", "new"); n != old || err != nil {
		t.Fatalf("%d, %v, want %d", n, err, old)
	}
	epochs, err := transfer.Epochs(t.Context(), pool)
	if err != nil || len(epochs) != 1 || epochs["new"] != accounts {
		t.Errorf("%v, %v", epochs, err)
	}
	statements := sent.All("FROM accounts")
	var most int64
	for _, s := range statements {
		most = max(most, b.RowsRead(s))
	}
	if len(statements) < 4 || most > 3000 {
		t.Errorf("one of %d statements read %d rows of %d accounts, want at most 3000", len(statements), most, accounts)
	}
}

func TestAccounts_ReadsOnlyTheAccountsOfTheOwner(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	b.openMany(20_000, 0)
	p := b.pair(1, 1)
	pool, sent := b.Recording()
	cfg := b.cfg
	cfg.Pool = pool
	svc, _ := b.another(cfg)
	if list, err := svc.Accounts(t.Context(), p.alice); len(list) != 1 || err != nil {
		t.Fatalf("%v, %v", list, err)
	}
	for _, s := range sent.All("FROM accounts") {
		if n := b.RowsRead(s); n != 1 {
			t.Errorf("read %d rows for one account:\n%s", n, s.SQL)
		}
	}
}
