// SPDX-License-Identifier: MIT

package transfer

import (
	"context"

	"shop/loadtest"
)

// archive empties the tables of transfers. It disables the trigger that makes the ledger append-only,
// as the owner of the table may. The idempotency keys stay until they are purged.
func archive(ctx context.Context, t *loadtest.Trial) error {
	return t.ExecSQL(ctx, `
ALTER TABLE ledger_entries DISABLE TRIGGER append_only;
TRUNCATE ledger_entries, transfers, accounts;
ALTER TABLE ledger_entries ENABLE TRIGGER append_only;
`+loadtest.AgeKeysSQL)
}
