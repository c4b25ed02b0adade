// SPDX-License-Identifier: MIT

package transfer

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/transfer"
)

// cells are the cells of transfers. Each cell has two accounts, which pay each other.
var cells = &loadtest.Cells{
	Strategy: "etcd-fenced",
	Steps:    loadtest.StepsOf(transfer.Steps()),
	Commits:  string(transfer.AfterCommit),
	Stores: []loadtest.CellStore{
		{Name: "etcd", Last: string(transfer.AfterCommit)}, // the locks are released after it
		{Name: "postgres", Last: string(transfer.BeforeCommit)},
	},
	Health:   "transfers",
	Supply:   supplyCells,
	Requests: cellRequests,
	Inspect:  loadtest.InspectSQL(transfer.Invariants.Checks, `SELECT count(*) FROM transfers WHERE client_id = $1 AND idempotency_key = $2`),
}

// cellOpening exceeds the sum of all requests of a cell.
const cellOpening = 1000

// supplyCells appends the accounts of the cells in rows: a row of payers, then a row of their payees,
// so that accounts of one row do not pay each other.
func supplyCells(p *loadtest.Plan, n int) {
	accounts := slices.Clone(money.Accounts(*p))
	random := rand.New(rand.NewPCG(uint64(len(p.Intents)), 3))
	for i := range (n + groups - 1) / groups * groups * 2 {
		accounts = append(accounts, money.Account{ID: loadtest.DrawID(random), Client: i % clients, Currency: currency, Opening: cellOpening, Ample: true})
	}
	p.Given = accounts
}

// cellAccount returns the index of the account that pays in cell n; its partner is the payee.
func cellAccount(n int) int { return clients + n/groups*groups*2 + n%groups }

// partner returns the account to which account i sends its money in the postcheck: the next one of
// its group, or the other one of its cell.
func partner(accounts []money.Account, i int) money.Account {
	if i < clients {
		return accounts[(i+groups)%clients]
	}
	return accounts[clients+(i-clients)^groups]
}

// warmUps bounds how often a request may be refused while a replica reconnects to its store.
const warmUps = 20

func cellRequests(p loadtest.Plan, n int, _ loadtest.Cell) (r loadtest.CellRequests) {
	at := cellAccount(n)
	a, b := money.Accounts(p)[at], partner(money.Accounts(p), at)
	pay := func(from, to money.Account, amount int64, name ...string) *loadtest.Intent {
		return moveIntent(from.Client, loadtest.CellKey(n, name...), &Move{From: from.ID, To: to.ID, Amount: amount})
	}
	for i := range warmUps {
		r.Warm = append(r.Warm, pay(a, b, 3, "warm", fmt.Sprint(i)))
	}
	r.Hit = pay(a, b, 10)
	r.Rivals = []*loadtest.Intent{pay(b, a, 7, "rival"), pay(a, b, 5, "last")}
	return r
}
