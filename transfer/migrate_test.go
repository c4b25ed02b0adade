// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// Migrate moves the keys of a database of the first version to the shared table. If an order
// has the same key, nothing is lost, and the transfer is not made again.
func TestMigrate_MovesTheKeysAndKeepsThoseThatCollide(t *testing.T) {
	t.Parallel()
	for _, collides := range []bool{false, true} {
		b := openOn(pgtest.New(t), transfer.Config{}, nil)
		if err := transfer.Migrate(t.Context(), b.URL); err != nil {
			t.Fatal(err)
		}
		p := b.pair(100, 0)
		plain, shared := newRequest(p.alice), newRequest(p.alice)
		first := b.transferred(b.Transfer(t.Context(), plain, p.move(30)))
		b.transferred(b.Transfer(t.Context(), shared, p.move(20)))
		b.Exec(`
			CREATE TABLE transfer_keys (LIKE idempotency_keys INCLUDING ALL);
			INSERT INTO transfer_keys SELECT * FROM idempotency_keys;
			DELETE FROM idempotency_keys;
			ALTER TABLE accounts RENAME COLUMN fence_epoch TO fence_source;
			ALTER TABLE ledger_entries RENAME COLUMN fence_epoch TO fence_source;
			ALTER TABLE fence_epochs RENAME COLUMN epoch TO source;
			DELETE FROM transfer_goose_version WHERE version_id >= 2`)
		if collides {
			b.Exec(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 201, 'an order')`, shared.Client, shared.Key, bytes.Repeat([]byte{1}, 32))
		}
		if err := transfer.Migrate(t.Context(), b.URL); err != nil {
			t.Fatal(err)
		}
		if again, err := b.Transfer(t.Context(), plain, p.move(30)); !again.Replayed || b.transferred(again, err).ID != first.ID {
			t.Errorf("%+v, %v: want the reply of the first version", again, err)
		}
		_, err := b.Transfer(t.Context(), shared, p.move(20))
		if errors.Is(err, idempotency.ErrKeyReused) != collides {
			t.Errorf("collision %v: %v", collides, err)
		}
		b.mustHave(p.a, 50, 0)
		if collides {
			if n := b.Number(`SELECT count(*) FROM transfer_keys_collided WHERE key = $1 AND status = 200 AND body <> 'an order'`, shared.Key); n != 1 {
				t.Errorf("%d records of the transfer, want 1", n)
			}
		}
		if n := b.Number(`SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'transfer_keys'`); n != 0 {
			t.Error("the old table is still there: a server of the first version would go on")
		}
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	url := pgtest.Schema(t)
	pool, store := pgtest.Pool(t, url), unasked{}
	unbounded, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unbounded.Close)
	for name, cfg := range map[string]transfer.Config{
		"no pool":              {},
		"an unbounded pool":    {Pool: unbounded, Strategy: "row"},
		"no such strategy":     {Pool: pool, Strategy: "hope"},
		"default needs a lock": {Pool: pool, Epoch: epoch},
		"… and an epoch":       {Pool: pool, Locks: store},
		"no lease ids":         {Pool: pool, Locks: store, Epoch: epoch, Strategy: "lease-id-fence"},
	} {
		if _, err := transfer.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := transfer.New(transfer.Config{Pool: pool, Locks: store, Epoch: epoch}); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestStrategies_AreTheTableOfTheLesson(t *testing.T) {
	t.Parallel()
	want := []string{"naive", "etcd-unfenced", "etcd-fence-only", "lease-id-fence", "token-per-transfer", "row", "serializable", "etcd-fenced", "combined"}
	var got []string
	for _, s := range transfer.Strategies() {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := safe(); !slices.Equal(got, []string{"etcd-fence-only", "row", "serializable", "etcd-fenced", "combined"}) {
		t.Errorf("safe: %q", got)
	}
	for _, s := range transfer.Strategies() {
		if !slices.Contains(s.Stores, "postgres") || s.Why == "" {
			t.Errorf("%+v", s)
		}
		s.Stores[0] = "changed by a caller"
	}
	if transfer.Strategies()[0].Stores[0] != "postgres" {
		t.Error("a caller changed the table")
	}
}

func TestWith_IsTheSameServiceUnderAnotherStrategy(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	naive, err := b.With("naive")
	if err != nil {
		t.Fatal(err)
	}
	b.transferred(naive.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	b.mustHave(p.a, 70, 0)
	if _, err := b.With("hope"); !errors.Is(err, transfer.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if _, err := b.With("etcd-fenced"); err == nil {
		t.Error("accepted without a lock store")
	}
}
