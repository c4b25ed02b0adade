package transfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
	"shop/transfer"
)

// cells are those of transfers. Each has two accounts, which pay each other.
var cells = &loadtest.Cells{
	Strategy: "etcd-fenced",
	Steps:    loadtest.StepsOf(transfer.Steps()),
	Commits:  string(transfer.AfterCommit),
	Stores: []loadtest.CellStore{
		{Name: "etcd", Last: string(transfer.AfterCommit)}, // the locks are given back behind it
		{Name: "postgres", Last: string(transfer.BeforeCommit)},
	},
	Health:   "transfers",
	Supply:   supplyCells,
	Requests: cellRequests,
	Inspect:  inspect,
}

// cellOpening is more than all requests of a cell ask for.
const cellOpening = 1000

// supplyCells opens the accounts of the cells behind the first ones, in rows: so many that pay,
// then those that they pay, so that accounts of one row pay each other nothing.
func supplyCells(p *loadtest.Plan, n int) {
	accounts := slices.Clone(money.Accounts(*p))
	random := rand.New(rand.NewPCG(uint64(len(p.Intents)), 3))
	for i := range (n + groups - 1) / groups * groups * 2 {
		accounts = append(accounts, money.Account{ID: loadtest.DrawID(random), Client: i % clients, Currency: currency, Opening: cellOpening, Ample: true})
	}
	p.Given = accounts
}

// cellAccount is where the account of cell n that pays stands; the one that it pays is its partner.
func cellAccount(n int) int { return clients + n/groups*groups*2 + n%groups }

// partner is the account that one sends its money to in the end: the next one of its group, or
// the other one of its cell.
func partner(accounts []money.Account, i int) money.Account {
	if i < clients {
		return accounts[(i+groups)%clients]
	}
	return accounts[clients+(i-clients)^groups]
}

// warmUps is how often a request may be refused while a replica finds its store again.
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

// inspect asks the checks that need the tables and the plan alone.
func inspect(ctx context.Context, t *loadtest.Trial) (*loadtest.Inspection, error) {
	planned := slices.DeleteFunc(slices.Clone(MoveChecks), func(c invariant.Check) bool {
		return strings.Contains(c.Query, "proof_moves") || c.Name == "I-HOLD over" // the sweeper is at work
	})
	fill := func(conn *pgx.Conn) error { return fillAccounts(ctx, conn, money.Accounts(t.Plan), t.Clients) }
	return loadtest.InspectSQL(ctx, t, fill, slices.Concat(transfer.Invariants.Checks, planned),
		`SELECT count(*) FROM transfers WHERE client_id = $1 AND idempotency_key = $2`)
}
