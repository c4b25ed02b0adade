// Package inventory is the flow of purchases: buyers of ten products that are dropped
// one after the other, who want at least twice of what is there, so that the last unit
// of each product is contended. Nothing may be sold twice.
package inventory

import (
	"context"
	"fmt"
	"slices"

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
			return fmt.Sprintf("%d buyers of %d units", len(p.Intents), units(p))
		},
		Watch: func(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
			return loadtest.WatchSQL(ctx, t.Postgres, shelvesSQL, t.History.Now)
		},
		Postcheck: func(ctx context.Context, t *loadtest.Trial) invariant.Findings {
			findings := invariant.Findings{}
			findings.Add("I-LIVE", buyAgain(ctx, t.Run, Products(t.Plan))...)
			return findings
		},
		Audit:        audit,
		Inconclusive: inconclusive,
		Faults:       []loadtest.StoreFaults{{Store: "redis", Faults: []loadtest.Fault{LockLost, RedisDown}}},
		Outages:      []loadtest.Fault{RedisDown},
		Quick: func(s loadtest.Scenario) bool {
			// The control and the real thing under the same load, the lock taken away from
			// both, and what else the real thing must survive.
			return s.Strategy == "redis+row" || s.Strategy == "naive" || s.Strategy == "redis-only" && s.Fault == LockLost
		},
		Counters: map[string]map[string]string{"inventory_events_total": {
			"guard_tripped": "guard_tripped", "retried": "retried", "degraded": "degraded", "bypassed": "bypassed", "shed": "shed",
			"ambiguous": "ambiguous", "resolved": "resolved",
		}},
		Invariants: slices.Concat(inventory.Invariants.Invariants, []invariant.Invariant{
			{Code: "S1-DURING", Name: "stock-balance-during", Means: "S1 in every sample while the load runs"},
			{Code: "S2", Name: "sold-as-answered", Means: "what left the shelf is what buyers were told, give or take what is unknown"},
			{Code: "I-SOLD", Name: "all-sold", Means: "nothing is left of what all buyers wanted"},
		}),
		Evidence: map[string]string{
			"oversold":      inventory.Invariants.Numbers[0].Means,
			"bypassed":      "purchases with the row lock alone, the lock having stayed busy",
			"shed":          "purchases refused for lack of a lock, too many going on without one",
			"degraded":      "purchases with the row lock alone, Redis being unreachable",
			"locks_deleted": "locks deleted under their holders",
			"redis_kills":   "times Redis was killed",
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
			Claim: "nothing was sold twice", Workload: "buyers who want at least twice of what is there",
			Gauge: "sold, of what was there", Done: "bought",
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
	}
	return f
}

// kept is what the mistakes of the controls do not touch.
var kept = []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"}

// shelvesSQL is one statement, so it sees one snapshot: at any moment, not only
// in the end, the shelf has to agree with the orders.
const shelvesSQL = `
SELECT p.sku, p.stock, (COALESCE(put.units, 0) - COALESCE(bought.units, 0))::bigint
FROM products p
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           WHERE kind IN ('opening', 'restock')
           GROUP BY sku) put ON put.sku = p.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
ORDER BY p.sku`

// crashesMin is how many kills make a crash run.
const crashesMin = 5

func inconclusive(s loadtest.Scenario, evidence map[string]int64) []string {
	switch s.Fault {
	case loadtest.Crash:
		return loadtest.Lacking(evidence,
			loadtest.Need{Evidence: "crashes", Least: crashesMin, Why: "fewer than 5 replicas were killed"},
			loadtest.Need{Evidence: "cut_off", Least: 1, Why: "no request was cut off by a kill"})
	case LockLost:
		return loadtest.Lacking(evidence,
			loadtest.Need{Evidence: "locks_deleted", Least: 1, Why: "no deletion hit a lock"},
			loadtest.Need{Evidence: "lock_lost", Least: 1, Why: "no holder noticed that its lock was gone"})
	case RedisDown:
		return loadtest.Lacking(evidence,
			loadtest.Need{Evidence: "redis_kills", Least: 1, Why: "Redis was not killed"},
			loadtest.Need{Evidence: "degraded", Least: 1, Why: "no purchase went on without the lock while Redis was down"},
			loadtest.Need{Evidence: "lock_acquired_after", Least: 1, Why: "no lock was taken after Redis was back"})
	}
	return nil
}

// audit reads what was sold from the database.
func audit(ctx context.Context, t *loadtest.Trial, records []loadtest.Record) (a loadtest.Audited, err error) {
	conn, err := t.Quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := LoadHistory(ctx, conn, Products(t.Plan), lines(records, t.Clients[0].ID)); err != nil {
		return a, err
	}
	checks := slices.Concat(inventory.Invariants.Checks, HistoryChecks, SoldChecks)
	if a.Findings, err = invariant.Run(ctx, checks, invariant.SQL(conn)); err != nil {
		return a, err
	}
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
			case record.Outcome == loadtest.OK && record.Action == Buy:
				n += l.Quantity
			case record.Outcome == loadtest.OK && record.Action == Cancel:
				n -= l.Quantity
			}
		}
	}
	return n
}
