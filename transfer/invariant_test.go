// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
	"shop/transfer"
)

// broken lists what breaks the invariants. It leaves out "I-ONCE answers", which needs the
// status of the replies: the default Encode stores none.
func (b *bank) broken() (list []string) {
	b.T.Helper()
	checks := slices.DeleteFunc(slices.Clone(transfer.Invariants.Checks), func(c invariant.Check) bool { return c.Name == "I-ONCE answers" })
	findings, err := invariant.Run(context.Background(), append(checks, invariant.Check{
		Name: "key", Invariant: "key", Means: "transfer without a key", Query: `
			SELECT t.id::text
			FROM transfers t
			LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
			WHERE k.key IS NULL`,
	}), invariant.SQL[pgx.Rows](b.Pool))
	if err != nil {
		b.T.Fatal(err)
	}
	for name, f := range findings {
		if f.Count > 0 {
			list = append(list, fmt.Sprintf("%s: %v", name, f.IDs))
		}
	}
	if sum := b.Number(`SELECT COALESCE(sum(balance), 0)::bigint FROM accounts`); sum != b.total {
		list = append(list, fmt.Sprintf("T1: the balances are %d in all, the openings were %d", sum, b.total))
	}
	return list
}

// mustHold fails the test if an invariant is broken.
func (b *bank) mustHold() {
	b.T.Helper()
	for _, line := range b.broken() {
		b.T.Error(line)
	}
}
