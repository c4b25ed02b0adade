// SPDX-License-Identifier: MIT

package report

import (
	"slices"
	"testing"

	"shop/locking/invariant"

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
		numbers := slices.Clone(flow.Counted)
		for _, under := range flow.Faults {
			for _, need := range under.Needs {
				numbers = append(numbers, need.Evidence)
			}
		}
		for _, name := range numbers {
			if flow.Explain(name) == "" {
				t.Errorf("%s is not explained on the page", name)
			}
		}
		if flow.Explain(flow.Number) == "" || invariant.Find(flow.AllInvariants(), flow.During).Means == "" {
			t.Errorf("%s or %s is not explained on the page", flow.Number, flow.During)
		}
	}
	for flow, checks := range map[*loadtest.Flow][]invariant.Check{
		inventory.New():                  slices.Concat(lesson1.Invariants.Checks, inventory.HistoryChecks, inventory.SoldChecks),
		transfer.New():                   slices.Concat(lesson2.Invariants.Checks, transfer.HistoryChecks),
		wallet.New(wallet.Environment{}): slices.Concat(lesson3.Invariants.Checks, wallet.HistoryChecks),
	} {
		for _, check := range checks {
			if invariant.Find(flow.AllInvariants(), check.Invariant).Means == "" || check.Means == "" {
				t.Errorf("%s: its invariant, or its result, is not explained", check.Name)
			}
		}
	}
}
