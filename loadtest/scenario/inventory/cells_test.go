// SPDX-License-Identifier: MIT

package inventory

import (
	"testing"
	"time"

	"shop/loadtest/crashmatrix"
	"shop/loadtest/traffic"
)

func TestCells_EachHasAProductWithExactlyTheStockThatItBuys(t *testing.T) {
	const n = 48
	plan := NewPlan(traffic.Load{Rate: 40, Duration: 6 * time.Second, Seed: 1, Replicas: 2})
	there := map[string]int64{}
	cells.Supply(&plan, n)
	for _, s := range Products(plan) {
		if _, twice := there[s.SKU]; twice {
			t.Errorf("product %s twice", s.SKU)
		}
		there[s.SKU] = s.Quantity
	}
	for i := range n {
		wanted, clients := map[string]int64{}, map[int]bool{}
		for role := range crashmatrix.Role(cellUnits) {
			r := crashmatrix.Request{Cell: i, Role: role}
			intent := cells.Request(plan, r)
			if intent.Key != r.Key() {
				t.Errorf("key %q, want %q", intent.Key, r.Key())
			}
			clients[intent.Client] = true
			for _, l := range cart(*intent) {
				wanted[l.SKU] += l.Quantity
			}
		}
		if name := cellProduct(i, 1).SKU; len(wanted) != 1 || wanted[name] != there[name] || len(clients) != cellUnits {
			t.Errorf("cell %d: wanted %v, by %d clients; stock %d", i, wanted, len(clients), there[name])
		}
	}
}
