package transfer

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
)

//go:embed invariants.sql
var invariantsSQL string

// Invariants are those that can be checked in the tables alone, without knowing what
// the clients got as replies.
var Invariants = invariant.Parse(invariantsSQL)

// Audit counts what breaks them. Every number is 0 where nothing is wrong.
func Audit(ctx context.Context, db invariant.Querier[pgx.Rows]) (map[string]int64, error) {
	return invariant.Audit(ctx, db, Invariants)
}
