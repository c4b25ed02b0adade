// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
)

//go:embed invariants.sql
var invariantsSQL string

// Invariants are the invariants that can be checked in the tables alone, without the
// replies that clients got.
var Invariants = invariant.Parse(invariantsSQL)

// Audit counts the violations of Invariants. Every count is 0 if nothing is wrong.
func Audit(ctx context.Context, db invariant.Querier[pgx.Rows]) (map[string]int64, error) {
	return invariant.Audit(ctx, db, Invariants)
}
