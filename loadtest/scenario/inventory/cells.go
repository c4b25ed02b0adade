// SPDX-License-Identifier: MIT

package inventory

import (
	"fmt"
	"slices"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// cells are the cells of purchases. Each cell has its own product, whose stock is exactly what its
// requests buy: one unit each.
var cells = &crashmatrix.Cells{
	Strategy: "redis+row",
	Steps:    loadtest.StepsOf(inventory.Steps()),
	Locks:    "redis",
	Database: "postgres",
	Health:   "locks",
	Supply: func(p *traffic.Plan, cells int) {
		given := slices.Clone(Products(*p))
		for n := range cells {
			given = append(given, cellProduct(n, cellUnits))
		}
		p.Given = given
	},
	Request: func(_ traffic.Plan, r crashmatrix.Request) *traffic.Intent {
		lines := []Stock{cellProduct(r.Cell, 1)}
		return intend(r.Key(), (r.Cell+int(r.Role))%clients, Buy, "/v1/orders", lines, buyBody(lines))
	},
	Query:   crashmatrix.QuerySQL,
	Checks:  inventory.Invariants.Checks,
	Effects: invariant.Check{Query: `SELECT id::text FROM orders WHERE idempotency_key = 'KEY'`},
}

// cellUnits is what a cell buys: a unit for each crashmatrix.Role.
const cellUnits = 4

// cellProduct is the product of cell n.
func cellProduct(n int, quantity int64) Stock {
	s := priced(n%(2*euros), quantity)
	s.SKU = fmt.Sprintf("cell-%03d", n)
	return s
}
