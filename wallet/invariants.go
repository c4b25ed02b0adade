// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/invariant"
)

//go:embed invariants.js
var invariantsJS string

// Invariants are the invariants that can be checked in the collections alone.
var Invariants = mustParse(invariantsJS)

// SideEffects is the invariant that the calls of the bonus service show, and no collection.
var SideEffects = invariant.Invariant{
	Code: "W-SIDE", Name: "side-effects",
	Means: "the bonus service applies each operation once; a bonus is in a balance exactly if its credit was committed (or its client abandoned it after busy); without a fault no request calls the service twice, unless it reached a time limit",
}

// Openings is the first stage of each pipeline that adds up balances: the wallets with their
// stored openings. The proof puts the openings of its plan in its place.
const Openings = `{"$project": {"wallet": "$_id", "says": "$balance", "true": "$opening"}}`

// aggregation is a query of invariants.js: its collection, and the stages of its pipeline. Aggregate
// sets the read concern itself.
var aggregation = regexp.MustCompile(`(?s)^db\.(\w+)\.aggregate\(\[\n(.*)\n\], \{readConcern: \{level: "snapshot"\}\}\)$`)

func mustParse(text string) invariant.Set {
	set := invariant.Parse(text)
	for _, checks := range [][]invariant.Check{set.Checks, set.Numbers} {
		for i, check := range checks {
			call := aggregation.FindStringSubmatch(check.Query)
			if call == nil {
				panic("wallet: no aggregation with read concern snapshot: " + check.Name)
			}
			checks[i].From, checks[i].Query = call[1], call[2]
		}
	}
	return set
}

// Audit counts what breaks the invariants that can be checked in the collections alone. If
// nothing is wrong, every count is 0.
func Audit(ctx context.Context, db *mongo.Database) (map[string]int64, error) {
	findings, err := invariant.Run(ctx, Invariants.Checks, Pipelines(db))
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	counts["drift"], err = Drift(ctx, db, Openings)
	return counts, err
}

// Drift is the sum of the minor units by which balances differ from their entries and the
// openings of a pipeline: Openings, or another.
func Drift(ctx context.Context, db *mongo.Database, openings string) (int64, error) {
	drift := Invariants.Numbers[0]
	var sums []struct{ Drift int64 }
	if err := Aggregate(ctx, db, drift.From, strings.Replace(drift.Query, Openings, openings, 1), &sums); err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	if len(sums) == 0 { // no wallet, no entry
		return 0, nil
	}
	return sums[0].Drift, nil
}
