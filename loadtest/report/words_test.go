package report

import (
	"slices"
	"testing"

	lesson1 "shop/inventory"
	"shop/loadtest"
	"shop/loadtest/scenario/inventory"
	"shop/loadtest/scenario/transfer"
	"shop/loadtest/scenario/wallet"
	lesson2 "shop/transfer"
	lesson3 "shop/wallet"
)

func TestWords_EveryNumberAndInvariantIsExplained(t *testing.T) {
	for _, flow := range []*loadtest.Flow{inventory.New(), transfer.New(), wallet.New(wallet.Environment{})} {
		for _, names := range flow.Counters {
			for _, name := range names {
				if explain(name) == "" {
					t.Errorf("%s is not explained on the page", name)
				}
			}
		}
		for _, invariant := range []string{flow.During, flow.Number} {
			if means(invariant) == "" {
				t.Errorf("%s is not explained on the page", invariant)
			}
		}
	}
	for _, check := range slices.Concat(
		lesson1.Invariants, inventory.HistoryChecks, inventory.SoldChecks, lesson2.Invariants, transfer.MoveChecks, lesson3.Invariants, wallet.ToldChecks,
	) {
		if means(check.Invariant) == "" || check.Means == "" {
			t.Errorf("%s: its invariant, or its result, is not explained", check.Name)
		}
	}
}
