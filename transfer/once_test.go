package transfer_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/transfer"
)

// Whatever the code does, the tables refuse a second effect of a transfer, a second entry at one place of an account's
// history, and a change of an entry.
func TestTables_RefuseASecondEffectOfATransfer(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	id := b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30))).ID
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	for _, second := range []struct{ name, code, constraint, sql string }{
		{"a second entry", "23505", "ledger_entries_transfer_id_account_id_key", `
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version)
			SELECT transfer_id, account_id, delta, 1000 + account_version FROM ledger_entries WHERE transfer_id = $1`},
		{"one version twice", "23505", "ledger_entries_account_id_account_version_key", `
			WITH another AS (
				INSERT INTO transfers
				SELECT gen_random_uuid(), client_id, 'another', from_id, to_id, amount, currency, state, settled, created_at, expires_at, ended_at
				FROM transfers WHERE id = $1
				RETURNING id
			)
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version)
			SELECT another.id, e.account_id, e.delta, e.account_version FROM another, ledger_entries AS e WHERE e.transfer_id = $1`},
		{"a second transfer", "23505", "transfers_pkey", `INSERT INTO transfers SELECT * FROM transfers WHERE id = $1`},
		{"another amount", "23001", "", `UPDATE ledger_entries SET delta = delta + 1 WHERE transfer_id = $1`},
		{"no entry", "23001", "", `DELETE FROM ledger_entries WHERE transfer_id = $1`},
	} {
		_, err := b.Pool.Exec(t.Context(), second.sql, id)
		if pg := new(pgconn.PgError); !errors.As(err, &pg) || pg.Code != second.code || pg.ConstraintName != second.constraint {
			t.Errorf("%s: %v, want %s %s", second.name, err, second.code, second.constraint)
		}
	}
	b.mustHold()
}
