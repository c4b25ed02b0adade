// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"shop/loadtest"
)

// archive empties the tables of purchases. The idempotency keys stay until they are purged.
func archive(ctx context.Context, t *loadtest.Trial) error {
	return t.ExecSQL(ctx, `TRUNCATE orders, order_lines, stock_movements, purchased, products; `+loadtest.AgeKeysSQL)
}
