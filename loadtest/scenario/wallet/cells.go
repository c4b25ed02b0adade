// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/wallet"
)

// cells are the cells of wallets. Each cell has two wallets, which pay each other.
var cells = &loadtest.Cells{
	Strategy: "lockid",
	Steps:    loadtest.StepsOf(wallet.Steps()),
	Commits:  string(wallet.AfterCommit),
	Stores:   []loadtest.CellStore{{Name: "mongo", Last: string(wallet.BeforeCommit)}},
	Health:   "wallets",
	Supply:   supplyCells,
	Requests: cellRequests,
	Inspect:  inspect,
}

const (
	cellOpening = 1000 // exceeds the sum of all requests of a cell
	warmUps     = 20   // bounds how often a request may be refused while a replica reconnects to its store
)

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

// cellRequests returns payments. At a step that only credits reach, the request that is hit is a credit.
func cellRequests(p traffic.Plan, n int, at loadtest.Cell) (r loadtest.CellRequests) {
	wallets := money.Accounts(p)
	a, b := wallets[1+ring+savers+2*n], wallets[1+ring+savers+2*n+1]
	ask := func(action traffic.Action, m Move, name ...string) *traffic.Intent {
		return intend(wallets, loadtest.CellKey(n, name...), action, m)
	}
	for i := range warmUps {
		r.Warm = append(r.Warm, ask(Pay, Move{From: a.ID, To: b.ID, Amount: 3}, "warm", fmt.Sprint(i)))
	}
	r.Hit = ask(Pay, Move{From: a.ID, To: b.ID, Amount: 10})
	if at.Step == string(wallet.AfterCall) {
		r.Hit = ask(Credit, Move{To: a.ID, Amount: 10})
	}
	r.Rivals = []*traffic.Intent{ask(Pay, Move{From: b.ID, To: a.ID, Amount: 7}, "rival"), ask(Debit, Move{From: a.ID, Amount: 5}, "last")}
	return r
}

// inspect prepares the checks that need only the collections.
func inspect(_ context.Context, t *loadtest.Trial) (*loadtest.Inspection, error) {
	db := Of(t).db.Database
	return &loadtest.Inspection{
		Checks: wallet.Invariants.Checks,
		Query:  wallet.Pipelines(db),
		Effects: func(ctx context.Context, client [16]byte, key string) (n int64, err error) {
			stored, err := effects(ctx, db)
			for _, s := range stored {
				if s.Client == client && s.Key == key {
					n++
				}
			}
			return n, err
		},
		Close: func() {},
	}, nil
}
