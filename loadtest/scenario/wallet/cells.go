// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/wallet"
)

// cells are the cells of wallets. Each cell has two wallets, which pay each other.
var cells = &crashmatrix.Cells{
	Strategy: "lockid",
	Steps:    loadtest.StepsOf(wallet.Steps()),
	Database: "mongo",
	Health:   "wallets",
	Setup:    loadtest.Setup{Mongo: "mongo", Proxied: true, Lifetime: time.Second},
	Supply:   supplyCells,
	Request:  cellRequest,
	Query: func(ctx context.Context, t *loadtest.Trial, check invariant.Check) ([]string, error) {
		return wallet.Pipelines(Of(t).db.Database)(ctx, check)
	},
	Checks:  wallet.Invariants.Checks,
	Effects: invariant.Check{From: "wallet_operations", Query: `{"$match": {"key": "KEY", "refused": {"$exists": false}}}`},
}

// cellOpening exceeds the sum of all requests of a cell.
const cellOpening = 1000

// supplyCells inserts the wallets of the cells before the two wallets of one client, which stay
// the last ones.
func supplyCells(p *traffic.Plan, n int) {
	wallets := money.Accounts(*p)
	random := rand.New(rand.NewPCG(uint64(len(p.Intents)), 3))
	var more []money.Account
	for i := range 2 * n {
		more = append(more, money.Account{ID: traffic.DrawID(random), Client: i % (p.Clients - 1), Currency: currency, Opening: cellOpening, Ample: true})
	}
	p.Given = slices.Concat(wallets[:len(wallets)-twoOfOne], more, wallets[len(wallets)-twoOfOne:])
}

// cellRequest returns payments, and a debit at the end. At a step that only credits reach, the request that is hit is a credit.
func cellRequest(p traffic.Plan, r crashmatrix.Request) *traffic.Intent {
	wallets := money.Accounts(p)
	pair := wallets[1+ring+savers+2*r.Cell:]
	action, m := Pay, Move{From: pair[0].ID, To: pair[1].ID, Amount: int64(3 + r.Role)}
	switch {
	case r.Role == crashmatrix.Rival:
		m.From, m.To = m.To, m.From
	case r.Role == crashmatrix.Last:
		action, m = Debit, Move{From: m.From, Amount: m.Amount}
	case r.Role == crashmatrix.Hit && r.Step == string(wallet.AfterCall):
		action, m = Credit, Move{To: m.From, Amount: m.Amount}
	}
	return intend(wallets, r.Key(), action, m)
}
