// SPDX-License-Identifier: MIT

package transfer

import (
	"math/rand/v2"
	"slices"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/transfer"
)

// cells are the cells of transfers. Each cell has two accounts, which pay each other.
var cells = &crashmatrix.Cells{
	Strategy: "etcd-fenced",
	Steps:    loadtest.StepsOf(transfer.Steps()),
	Locks:    "etcd",
	Database: "postgres",
	Health:   "transfers",
	Supply:   supplyCells,
	Request: func(p traffic.Plan, r crashmatrix.Request) *traffic.Intent {
		from := cellAccount(r.Cell)
		a, b := money.Accounts(p)[from], partner(money.Accounts(p), from)
		if r.Role == crashmatrix.Rival {
			a, b = b, a
		}
		return moveIntent(a.Client, r.Key(), &Move{From: a.ID, To: b.ID, Amount: int64(3 + r.Role)})
	},
	Query:   crashmatrix.QuerySQL,
	Checks:  transfer.Invariants.Checks,
	Effects: invariant.Check{Query: `SELECT id::text FROM transfers WHERE idempotency_key = 'KEY'`},
}

// cellOpening exceeds the sum of all requests of a cell.
const cellOpening = 1000

// supplyCells appends the accounts of the cells in rows: a row of payers, then a row of their payees,
// so that accounts of one row do not pay each other.
func supplyCells(p *traffic.Plan, n int) {
	accounts := slices.Clone(money.Accounts(*p))
	random := rand.New(rand.NewPCG(uint64(len(p.Intents)), 3))
	for i := range (n + groups - 1) / groups * groups * 2 {
		accounts = append(accounts, money.Account{ID: traffic.DrawID(random), Client: i % clients, Currency: currency, Opening: cellOpening, Ample: true})
	}
	p.Given = accounts
}

// cellAccount returns the index of the account that pays in cell n; its partner is the payee.
func cellAccount(n int) int { return clients + n/groups*groups*2 + n%groups }
