// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"testing"
	"time"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestArchive_EmptiesTheLedgerWhichIsAppendOnlyAfterwards(t *testing.T) {
	db, err := loadtest.CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), "soak_archive_"+time.Now().Format("150405_000000000"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	conn := testbed.Connect(t, db.URL)
	pgtest.Migrate(t, conn, "transfer")
	const one = `
INSERT INTO accounts (id, owner_id, currency, opening, balance)
SELECT gen_random_uuid(), gen_random_uuid(), 'EUR', 5, 5 FROM generate_series(1, 2);
INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, settled, created_at, ended_at)
SELECT gen_random_uuid(), gen_random_uuid(), 'k', min(id::text)::uuid, max(id::text)::uuid, 1, 'EUR', 'posted', 1, now(), now() FROM accounts;
INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version) SELECT id, from_id, -1, 1 FROM transfers;`
	testbed.Exec(t, conn, one)
	if err := archive(t.Context(), &loadtest.Trial{Postgres: db.URL}); err != nil {
		t.Fatal(err)
	}
	var left int
	const count = `SELECT (SELECT count(*) FROM accounts) + (SELECT count(*) FROM transfers) + (SELECT count(*) FROM ledger_entries)`
	if err := conn.QueryRow(t.Context(), count).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows left, %v", left, err)
	}
	testbed.Exec(t, conn, one)
	if _, err := conn.Exec(t.Context(), `DELETE FROM ledger_entries`); err == nil {
		t.Error("an entry was deleted")
	}
}
