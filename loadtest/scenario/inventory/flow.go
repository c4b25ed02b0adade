// Package inventory is the flow of purchases: five clients buy ten products that are dropped
// one after the other. They want at least twice of what is there, so that the last unit
// of each product is contended. Nothing may be sold twice.
//
// Among the purchases they read the products on sale, the list of all, and each order that was
// made. One purchase in twenty is given up after "busy"; one in fifty has the key that another client
// has just used. One order in thirty each is cancelled under two keys at once, and again when that is
// over, and bought anew; is read, or cancelled, by another client; has its key used again for another
// cart, or for its own cancellation. One request in fifty is about an order or a product that is not
// there, or about a cart in two currencies.
package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/loadtest"
	"shop/locking/invariant"
)

// The faults of inventory's stores.
const (
	LockLost  loadtest.Fault = "lock-lost"
	RedisDown loadtest.Fault = "redis-down"
)

// New is the flow of purchases.
func New() *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "inventory", Number: "oversold", During: "S1-DURING", Guard: "CHECK (stock >= 0)",
		Plan: NewPlan,
		Workload: func(p loadtest.Plan) string {
			return fmt.Sprintf("%d purchases of %d clients of %d units", len(p.Load()), p.Clients, units(p))
		},
		Watch: func(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
			return loadtest.WatchSQL(ctx, t.Postgres, shelvesSQL(Products(t.Plan)), t.Look)
		},
		FollowUp: followUp,
		Postcheck: func(ctx context.Context, t *loadtest.Trial) invariant.Findings {
			findings := invariant.Findings{}
			findings.Add("I-LIVE", buyAgain(ctx, t.Run, Products(t.Plan))...)
			offend(ctx, t.Run)
			return findings
		},
		Audit:   audit,
		Archive: archive,
		Linear:  linearize,
		Moments: map[loadtest.Action]string{Buy: "created_at", Cancel: "cancelled_at"},
		Cells:   cells,
		Faults:  faults,
		Locked:  locked,
		// The control and the real thing under the same load, the lock taken away from both,
		// and what else the real thing must survive.
		Quick:   []string{"naive/none", "redis-only/lock-lost", "redis+row/none", "redis+row/lock-lost", "redis+row/redis-down", "redis+row/crash"},
		Counted: []string{"guard_tripped", "retried", "degraded", "bypassed", "shed", "ambiguous", "resolved"},
		Invariants: slices.Concat(inventory.Invariants.Invariants, []invariant.Invariant{
			{Code: "S1-DURING", Name: "stock-balance-during", Means: "S1 in every sample while the load runs"},
			{Code: "S2", Name: "sold-as-answered", Means: "what left the shelf is what buyers were told, give or take what is unknown"},
			{Code: "S3", Name: "planned-prices", Means: "products and orders cost what the plan says, in its currencies"},
			{Code: "I-SOLD", Name: "all-sold", Means: "nothing is left of what all buyers wanted"},
		}),
		Evidence: map[string]string{
			"oversold":      inventory.Invariants.Numbers[0].Means,
			"bypassed":      "purchases with the row lock alone, the lock having stayed busy",
			"shed":          "purchases refused for lack of a lock, too many going on without one",
			"degraded":      "purchases with the row lock alone, Redis being unreachable",
			"locks_deleted": "locks deleted under their holders",
			"redis_kills":   "times Redis was killed",
			"pg_restarts":   "times PostgreSQL was killed and started again",
		},
		Summary: summary,
		Gauge: func(r loadtest.Result) loadtest.Gauge {
			return loadtest.Gauge{Done: sold(r), Over: r.Violations["oversold"], There: units(r.Plan)}
		},
		Curves: []loadtest.Curve{
			{Class: "line true", Of: func(s loadtest.Sample) int64 { return s.Total().True }},
			{Class: "line shelf", Of: func(s loadtest.Sample) int64 { return s.Total().Says }},
		},
		Words: loadtest.Words{
			Workload: "buyers who want at least twice of what is there, read it meanwhile, and try what is not allowed",
			Gauge:    "sold, of what was there", Done: "bought",
			Levels: "Units left: dashed, what the shelf says; solid, what is left after all orders. They must be one line, and never go below 0.",
			Note:   "The mark in a bar is all that was there; red is what was sold beyond it.",
		},
	}
	// The controls must be violated, or show that a violation comes from its fault:
	// redis-only holds as long as its lock is not taken away.
	f.Controls = []loadtest.Scenario{
		f.Control("naive", loadtest.NoFault, kept, "S1"),
		f.Safe("redis-only", loadtest.NoFault),
		f.Control("redis-only", LockLost, kept, "S1"),
		f.CellControl("naive", []loadtest.Cell{{Step: string(inventory.AfterGuard), Fault: loadtest.CellFault{Kind: loadtest.CellPaused}}}, kept, "S1"),
	}
	return f
}

// locked tells whether a strategy takes a lock in Redis.
func locked(strategy string) bool {
	return slices.ContainsFunc(inventory.Strategies(), func(m inventory.Strategy) bool {
		return m.Name == strategy && slices.Contains(m.Stores, "redis")
	})
}

// kept is what the mistakes of the controls do not touch.
var kept = []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"}

// shelvesSQL is one statement, so it sees one snapshot: at any moment, not only
// in the end, the shelf has to agree with what the plan put there and with the orders.
func shelvesSQL(opening []Stock) string {
	var rows []string
	for _, s := range opening {
		rows = append(rows, fmt.Sprintf("('%s', %d::bigint)", s.SKU, s.Quantity))
	}
	return `
WITH opening (sku, quantity) AS (VALUES ` + strings.Join(rows, ", ") + `)
SELECT COALESCE(p.sku, opening.sku), COALESCE(p.stock, -1), (COALESCE(opening.quantity, 0) - COALESCE(bought.units, 0))::bigint
FROM products p
FULL JOIN opening ON opening.sku = p.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
ORDER BY 1`
}

// serverTime is how long a server is away when it is killed under a nemesis, and started again.
const serverTime = 6 * time.Second

// faults are those of a purchase's stores and replicas, and what must be seen under each.
var faults = []loadtest.FaultSpec{
	{Fault: loadtest.NoFault},
	{Fault: LockLost, Store: "redis", Needs: []loadtest.Need{
		{Evidence: "locks_deleted", Why: "no deletion hit a lock"},
	}},
	{Fault: RedisDown, Store: "redis", Outage: true, Needs: []loadtest.Need{
		{Evidence: "redis_kills", Why: "Redis was not killed"},
		{Evidence: "done_meanwhile", Least: 10, Why: "fewer than 10 purchases succeeded while Redis was down"},
		{Evidence: "lock_calls_after", Why: "Redis was asked for no lock after it was back"},
	}},
	{Fault: loadtest.Crash, Needs: []loadtest.Need{
		{Evidence: "crashes", Least: 5, Why: "fewer than 5 kills of replicas cut a request off"},
		{Evidence: "cut_off", Why: "no request was cut off by a kill"},
	}},
	loadtest.NemesisSpec(serverTime, 1),
	loadtest.SoakSpec(serverTime),
	loadtest.CrashMatrixSpec(5),
}

// audit reads what was sold from the database.
func audit(ctx context.Context, t *loadtest.Trial, records []loadtest.Record) (a loadtest.Audited, err error) {
	conn, err := t.Quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := LoadHistory(ctx, conn, Products(t.Plan), records, t.Clients); err != nil {
		return a, err
	}
	checks := slices.Concat(inventory.Invariants.Checks, HistoryChecks, BodyChecks, SoldChecks)
	if a.Findings, err = invariant.Run(ctx, checks, invariant.SQL(conn)); err != nil {
		return a, err
	}
	if a.Effects, err = loadtest.StoredSQL(ctx, conn, effectsSQL); err != nil {
		return a, err
	}
	a.Findings.Add("I-BODY", misreported(records)...)
	if a.Number, err = invariant.Number(ctx, conn, oversoldSQL); err != nil {
		return a, err
	}
	oversale, err := findOversale(ctx, conn, t.Loaded(records))
	a.Story = oversale.story(t.Samples)
	return a, err
}

func summary(r loadtest.Result) string {
	text := fmt.Sprintf("%d of %d units sold", sold(r), units(r.Plan))
	if n := r.Violations["oversold"]; n > 0 {
		text += fmt.Sprintf(", %d of them twice", n)
	}
	return text
}

// sold is what buyers were promised, in units.
func sold(r loadtest.Result) (n int64) {
	for _, record := range r.Records {
		for _, l := range cart(record.Intent) {
			switch {
			case record.Outcome != loadtest.OK:
			case record.Action == Buy:
				n += l.Quantity
			case record.Action == Cancel:
				n -= l.Quantity
			}
		}
	}
	return n
}

// buyAgain shows on every product that it can still be sold: an order is cancelled, and
// the unit that it gives back is bought. It returns the products where that failed.
func buyAgain(ctx context.Context, run *loadtest.Run, stock []Stock) []string {
	records := run.History.Records()
	gone := map[uuid.UUID]bool{} // orders that the load has cancelled
	for _, r := range records {
		if of, cancels := r.Of.(Return); cancels {
			gone[of.Order] = true
		}
	}
	cancel := map[string]*loadtest.Intent{}
	for _, r := range records {
		if lines := cart(r.Intent); r.Outcome == loadtest.OK && r.Action == Buy && len(lines) == 1 && lines[0].Quantity == 1 && !gone[r.Made] {
			if sku := lines[0].SKU; cancel[sku] == nil {
				cancel[sku] = cancelIntent("cancel-"+r.Key, r.Client, r)
			}
		}
	}
	var dead []string
	for n, s := range stock {
		s.Quantity = 1
		again := intend("final-"+s.SKU, n%clients, Buy, "/v1/orders", []Stock{s}, buyBody([]Stock{s}))
		back := cancel[s.SKU]
		switch {
		case back == nil:
			dead = append(dead, s.SKU+": no order of it succeeded")
		case run.Settle(ctx, n, back).Outcome != loadtest.OK:
			dead = append(dead, s.SKU+": the last cancellation ended as "+run.History.Record(back.Key).Ended())
		case run.Settle(ctx, n+1, again).Outcome != loadtest.OK:
			dead = append(dead, s.SKU+": the last purchase ended as "+run.History.Record(again.Key).Ended())
		}
	}
	return dead
}
