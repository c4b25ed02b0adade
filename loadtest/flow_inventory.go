package loadtest

import (
	"context"
	"fmt"

	"shop/inventory"
	"shop/locking/invariant"
)

// Inventory is the flow of purchases: nothing is sold twice.
var Inventory = Flow{
	Name: inventoryFlow, Number: "oversold", During: "S1-DURING", Guard: "CHECK (stock >= 0)",
	Plan: NewInventoryPlan,
	Crowd: func(p Plan) string {
		return fmt.Sprintf("%d buyers of %d units", len(p.Intents), p.units())
	},
	Watch: watchShelves,
	Finale: func(ctx context.Context, r *run) invariant.Findings {
		findings := invariant.Findings{}
		findings.Add("I-LIVE", r.volley.finale(ctx, r.plan.Stock)...)
		return findings
	},
	Audit:    auditSales,
	Void:     voidSales,
	Controls: salesControls,
	Faults:   map[string][]Fault{"redis": {LockLost, RedisDown}},
	Quick: func(s Scenario) bool {
		// The control and the real thing under the same load, the lock taken away from
		// both, and what else the real thing must survive.
		return s.Strategy == "redis+row" || s.Strategy == "naive" || s.Strategy == "redis-only" && s.Fault == LockLost
	},
	Told: toldOfSales,
	Plot: Result.Shelf,
	Words: Words{
		Claim: "nothing was sold twice", Crowd: "buyers who want at least twice of what is there",
		Gauge: "sold, of what was there", Done: "bought",
		Levels: "Units left: dashed, what the shelf says; solid, what is left after all orders. They must be one line, and never go below 0.",
		Note:   "The mark in a bar is all that was there; red is what was sold beyond it.",
	},
}

// salesKept is what the mistakes of the controls do not touch.
var salesKept = []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"}

// salesControls are the scenarios that must be violated, or that show that a
// violation comes from its fault: redis-only holds as long as nobody takes its
// lock away.
var salesControls = []Scenario{
	control(inventoryFlow, "naive", NoFault, salesKept, "S1"),
	safe(inventoryFlow, "redis-only", NoFault),
	control(inventoryFlow, "redis-only", LockLost, salesKept, "S1"),
}

// crashesMin is how many kills make a crash run.
const crashesMin = 5

func voidSales(s Scenario, evidence map[string]int64) []string {
	switch s.Fault {
	case Crash:
		return lacking(evidence,
			need{"crashes", crashesMin, "fewer than 5 replicas were killed"},
			need{"cut_off", 1, "no request was cut off by a kill"})
	case LockLost:
		return lacking(evidence,
			need{"locks_deleted", 1, "no deletion hit a lock"},
			need{"lock_lost", 1, "no holder noticed that its lock was gone"})
	case RedisDown:
		return lacking(evidence,
			need{"redis_kills", 1, "Redis was not killed"},
			need{"degraded", 1, "no purchase went on without the lock while Redis was down"},
			need{"lock_acquired_after", 1, "no lock was taken after Redis was back"})
	}
	return nil
}

// auditSales asks the database what was sold.
func auditSales(ctx context.Context, r *run, records []Record) (a Audited, err error) {
	conn, err := r.quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := LoadHistory(ctx, conn, r.plan.Stock, lines(records, r.clients[0].ID)); err != nil {
		return a, err
	}
	checks := append(append(append([]invariant.Check{}, inventory.Invariants...), HistoryChecks...), SoldChecks...)
	if a.Findings, err = invariant.Run(ctx, checks, invariant.SQL(conn)); err != nil {
		return a, err
	}
	if a.Number, err = invariant.Number(ctx, conn, inventory.OversoldSQL(putByPlan)); err != nil {
		return a, err
	}
	a.Oversale, err = FindOversale(ctx, conn, records[:r.loaded])
	return a, err
}

func toldOfSales(r Result) string {
	text := fmt.Sprintf("%d of %d units sold", r.soldUnits(), r.Stock)
	if n := r.Violations["oversold"]; n > 0 {
		text += fmt.Sprintf(", %d of them twice", n)
	}
	return text
}

// soldUnits is what buyers were promised.
func (r Result) soldUnits() (n int64) {
	for _, record := range r.Records {
		for _, l := range record.Lines {
			switch {
			case record.Outcome == OK && record.Action == Buy:
				n += l.Quantity
			case record.Outcome == OK && record.Action == Cancel:
				n -= l.Quantity
			}
		}
	}
	return n
}
