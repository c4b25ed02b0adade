// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/transfer"
)

// Whatever the code does, the tables refuse a second effect of a transfer, and a second entry at one place of an account's
// history.
func TestTables_RefuseASecondEffectOfATransfer(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	id := b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30))).ID
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	for _, second := range []struct{ name, constraint, sql string }{
		{"a second entry", "ledger_entries_transfer_id_account_id_key", `
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version)
			SELECT transfer_id, account_id, delta, 1000 + account_version FROM ledger_entries WHERE transfer_id = $1`},
		{"one version twice", "ledger_entries_account_id_account_version_key", `
			WITH another AS (
				INSERT INTO transfers
				SELECT gen_random_uuid(), client_id, 'another', from_id, to_id, amount, currency, state, settled, created_at, expires_at, ended_at
				FROM transfers WHERE id = $1
				RETURNING id
			)
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version)
			SELECT another.id, e.account_id, e.delta, e.account_version FROM another, ledger_entries AS e WHERE e.transfer_id = $1`},
		{"a second transfer", "transfers_pkey", `INSERT INTO transfers SELECT * FROM transfers WHERE id = $1`},
	} {
		_, err := b.Pool.Exec(t.Context(), second.sql, id)
		if pg := new(pgconn.PgError); !errors.As(err, &pg) || pg.Code != "23505" || pg.ConstraintName != second.constraint {
			t.Errorf("%s: %v, want 23505 of %s", second.name, err, second.constraint)
		}
	}
	b.mustHold()
}
