// SPDX-License-Identifier: MIT

package wallet

import (
	"slices"
	"testing"

	"shop/loadtest/judge"
)

func TestEffects_AreTheExecutedOperations(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	is, err := readStored(t.Context(), db)
	stored := is.effects()
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range stored {
		keys = append(keys, s.Key)
		if s.Key == "k1" && (string(s.Answer) != `{"bonus":10}` || s.Order == 0 || s.Client[15] == 0) {
			t.Errorf("%+v", s)
		}
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"k1", "k2", "k3", "shared"}) {
		t.Errorf("%q", keys)
	}
}

// The operations of one transaction have one time. Their entries have the order in which they were done.
func TestEffects_OfOneTransactionAreInTheOrderOfTheirEntries(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	is, err := readStored(t.Context(), db)
	stored := is.effects()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(stored, func(a, b judge.Stored) int { return int(a.Order - b.Order) })
	for n, want := range []string{"k1", "k2", "k3", "shared"} {
		if stored[n].Key != want {
			t.Errorf("%d: %q, want %q", n, stored[n].Key, want)
		}
	}
}

func TestTogether_CountsTransactionsOfSeveralOperations(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets()) // all have one time
	if n, err := together(t.Context(), db); n != 1 || err != nil {
		t.Errorf("%d, %v, want 1", n, err)
	}
	do(t, db, update("wallet_operations", `{}`, `[{"$set": {"createdAt": {"$add": ["$createdAt", "$amount"]}}}]`))
	if n, err := together(t.Context(), db); n != 0 || err != nil {
		t.Errorf("each with its own time: %d, %v, want 0", n, err)
	}
}
