// SPDX-License-Identifier: MIT

package inventory

import (
	"fmt"
	"slices"

	"shop/inventory"
	"shop/loadtest"
)

// cells are the cells of purchases. Each cell has its own product, whose stock is exactly what its
// requests buy: one unit each.
var cells = &loadtest.Cells{
	Strategy: "redis+row",
	Steps:    loadtest.StepsOf(inventory.Steps()),
	Commits:  string(inventory.AfterCommit),
	Stores: []loadtest.CellStore{
		{Name: "redis", Last: string(inventory.AfterCommit)}, // the lock is released after it
		{Name: "postgres", Last: string(inventory.BeforeCommit)},
	},
	Health:   "locks",
	Supply:   supplyCells,
	Requests: cellRequests,
	Inspect:  loadtest.InspectSQL(inventory.Invariants.Checks, `SELECT count(*) FROM orders WHERE client_id = $1 AND idempotency_key = $2`),
}

// cellUnits is what a cell buys: one unit each for the warm-up, the request that is hit, and two rivals.
const cellUnits = 4

// cellProduct is the product of cell n.
func cellProduct(n int, quantity int64) Stock {
	s := priced(n%(2*euros), quantity)
	s.SKU = fmt.Sprintf("cell-%03d", n)
	return s
}

func supplyCells(p *loadtest.Plan, n int) {
	given := slices.Clone(Products(*p))
	for i := range n {
		given = append(given, cellProduct(i, cellUnits))
	}
	p.Given = given
}

func cellRequests(_ loadtest.Plan, n int, _ loadtest.Cell) loadtest.CellRequests {
	buy := func(client int, name ...string) *loadtest.Intent {
		lines := []Stock{cellProduct(n, 1)}
		return intend(loadtest.CellKey(n, name...), (n+client)%clients, Buy, "/v1/orders", lines, buyBody(lines))
	}
	return loadtest.CellRequests{
		Warm: []*loadtest.Intent{buy(0, "warm")}, Hit: buy(1), Rivals: []*loadtest.Intent{buy(2, "rival"), buy(3, "last")},
	}
}
