// SPDX-License-Identifier: MIT

package inventory_test

import (
	"fmt"
	"slices"
	"testing"

	"shop/inventory"
)

func ExampleStrategies() {
	for _, s := range inventory.Strategies() {
		verdict := "unsafe"
		if s.Safe {
			verdict = "safe"
		}
		fmt.Printf("%-12s %-6s %v\n", s.Name, verdict, s.Stores)
	}
	// Output:
	// naive        unsafe [postgres]
	// redis-only   unsafe [redis postgres]
	// redis+row    safe   [redis postgres]
	// combined     safe   [redis postgres]
	// row          safe   [postgres]
	// atomic       safe   [postgres]
	// optimistic   safe   [postgres]
	// serializable safe   [postgres]
	// advisory     safe   [postgres]
	// advisory-try safe   [postgres]
	// slots        safe   [postgres]
}

func TestStrategies_HaveAReason(t *testing.T) {
	t.Parallel()
	list := inventory.Strategies()
	for _, s := range list {
		if s.Why == "" {
			t.Errorf("%s does not say why", s.Name)
		}
	}
	list[0].Stores[0] = "mine" // the caller may change its list
	if slices.Contains(inventory.Strategies()[0].Stores, "mine") {
		t.Error("the list is shared")
	}
}

// Every replica must compute the same number, including replicas of later versions.
func TestAdvisory_KeysNeverChangeAndAreInOrder(t *testing.T) {
	t.Parallel()
	if got, want := inventory.LockKey("inventory/product/A"), int64(-217846174227409166); got != want {
		t.Errorf("the number of A is %d, was %d: buyers of two versions would not exclude each other", got, want)
	}
	keys := inventory.LockKeys([]string{"A", "B", "C", "D", "E", "A"})
	if len(keys) != 5 || !slices.IsSorted(keys) {
		t.Errorf("%v: want each number once, and in order of the numbers", keys)
	}
}
