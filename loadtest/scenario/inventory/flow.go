// SPDX-License-Identifier: MIT

// Package inventory is the flow of purchases: five clients buy ten products that go on sale
// in sequence. The demand is at least twice the stock, so that the last unit of each
// product is contended. No unit may be sold twice.
//
// Between purchases the clients read the products on sale, the list of all products, and each new
// order. One purchase in twenty is abandoned after "busy". One in fifty uses the key of another
// client's purchase, which is under way or over. For every fifty purchases there is one request about an
// order or a product that does not exist, or a purchase in two currencies. Of the orders, one in thirty
// each
//
//   - is cancelled under two keys at once, cancelled once more, and bought again;
//   - is read by another client;
//   - is cancelled by another client;
//   - has its key reused for another cart;
//   - has its key reused for its own cancellation.
package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/redisfault"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// The faults of inventory's stores.
const (
	LockLost      loadtest.Fault = "lock-lost"
	RedisDown     loadtest.Fault = "redis-down"
	RedisFailover loadtest.Fault = "redis-failover"
)

// New returns the flow of purchases.
func New() *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "inventory", Number: "oversold", During: "S1-DURING",
		Plan: NewPlan,
		Watch: func(ctx context.Context, t *loadtest.Trial) ([]judge.Sample, error) {
			return judge.WatchSQL(ctx, t.Postgres, shelvesSQL(Products(t.Plan)), t.Look)
		},
		FollowUp: followUp,
		Postcheck: func(ctx context.Context, t *loadtest.Trial) invariant.Findings {
			findings := invariant.Findings{}
			findings.Add("I-LIVE", buyAgain(ctx, t.Run, Products(t.Plan))...)
			t.Offend(ctx, nil, attacks)
			return findings
		},
		Audit:  audit,
		Linear: linearize,
		Faults: faults,
		Locked: loadtest.Using("redis", loadtest.StrategiesOf(inventory.Strategies())), LockCalls: 2, // to acquire it and to release it
		Batch: loadtest.StepsOf([]inventory.Step{inventory.AfterGuard, inventory.AfterKey, inventory.BeforeCommit, inventory.AfterCommit, inventory.AfterGuard, inventory.BeforeCommit}),
		Timing: loadtest.Timing{
			// The control and the default under the same load, both with lost locks, and the other
			// faults that the default must survive.
			Quick: []string{"naive/none", "redis-only/lock-lost", "redis+row/none", "redis+row/lock-lost", "redis+row/redis-down", "redis+row/crash"},
		},
		Answers: loadtest.Answers{
			Refuses: map[traffic.Action][]string{Buy: {"out-of-stock"}, Cancel: {"already-cancelled"}},
			Stored:  []string{"out-of-stock", "already-cancelled"},
			Moments: map[traffic.Action]string{Buy: "created_at", Cancel: "cancelled_at"},
		},
		Counted: []string{"guard_tripped", "retried", "degraded", "bypassed", "shed", "ambiguous", "resolved"},
		Invariants: slices.Concat(inventory.Invariants.Invariants, []invariant.Invariant{
			{Code: "S1-DURING", Name: "stock-balance-during", Means: "S1 in every sample while the load runs"},
			{Code: "S2", Name: "sold-as-answered", Means: "the units taken from stock are those acknowledged to buyers, give or take unknown outcomes"},
			{Code: "S3", Name: "planned-prices", Means: "products and orders have the plan's prices and currencies"},
			{Code: "I-SOLD", Name: "all-sold", Means: "no stock is left of a product whose demand exceeded it"},
		}),
		Evidence: evidence,
		Shown:    shown,
	}
	// The controls must be violated, or show that the fault causes the violation:
	// redis-only is safe as long as its lock is not lost.
	f.Controls = []loadtest.Scenario{
		f.Control("naive", loadtest.NoFault, kept, "S1"),
		f.Safe("redis-only", loadtest.NoFault),
		f.Control("redis-only", LockLost, kept, "S1"),
		f.Control("redis-only", RedisFailover, kept, "S1").NeedsPause(),
		f.Control("redis+row", loadtest.PrimaryLostAsync, []string{"S1", "S1-DURING", "I-WHOLE"}, "I-ACK"),
		f.Control("row", loadtest.AllKilledAsync, []string{"S1", "S1-DURING", "I-WHOLE"}, "I-ACK"),
	}
	cells.Add(f)
	return f
}

// shown is what the report shows of purchases.
var shown = loadtest.Shown{
	Guard: "CHECK (stock >= 0)",
	Workload: func(p traffic.Plan) string {
		return fmt.Sprintf("%d purchases by %d clients of %d units", len(p.Load()), p.Clients, units(p))
	},
	Summary: summary,
	Gauge: func(r loadtest.Result) loadtest.Gauge {
		return loadtest.Gauge{Done: sold(r), Over: r.Violations["oversold"], There: units(r.Plan)}
	},
	Curves: []loadtest.Curve{
		{Name: "after all orders", Of: func(s judge.Sample) int64 { return s.Total().True }},
		{Name: "in the table", Dashed: true, Of: func(s judge.Sample) int64 { return s.Total().Says }},
	},
	Words: loadtest.Words{
		Workload: "buyers who want at least twice the stock, read it while they buy, and send forbidden requests",
		Gauge:    "sold, of the stock", Done: "bought",
		Levels: "Units left: dashed, the stock in the table; solid, the stock after all orders. They must be one line, and never go below 0.",
		Note:   "The mark in a bar is the whole stock; red is what was sold beyond it.",
	},
}

// evidence says what the numbers of a result count.
var evidence = map[string]string{
	"oversold":        inventory.Invariants.Numbers[0].Means,
	"bypassed":        "purchases with the row lock alone, because the Redis lock stayed busy",
	"shed":            "purchases refused without a lock, because too many others already had none",
	"degraded":        "purchases with the row lock alone, because Redis was unreachable",
	"locks_deleted":   "locks deleted under their holders",
	"redis_kills":     "times Redis was killed",
	"redis_failovers": "times Sentinel replaced the master of Redis",
	"two_holders":     "of these, times the new master granted a lock that a paused replica still held within its TTL",
	"pg_restarts":     "times PostgreSQL was killed and started again",
}

// kept lists the invariants that hold in spite of the controls' mistakes.
var kept = []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"}

// shelvesSQL is one statement, so it sees one snapshot: at any moment, not only at
// the end, the stock must equal the plan's stock minus the orders.
func shelvesSQL(opening []Stock) string {
	var rows []string
	for _, s := range opening {
		rows = append(rows, fmt.Sprintf("('%s', %d::bigint)", s.SKU, s.Quantity))
	}
	return `
WITH opening (sku, quantity) AS (VALUES ` + strings.Join(rows, ", ") + `)
SELECT COALESCE(p.sku, opening.sku), COALESCE(p.stock, -1), (COALESCE(opening.quantity, 0) - COALESCE(bought.units, 0))::bigint
FROM products_with_slots p
FULL JOIN opening ON opening.sku = p.sku
LEFT JOIN ` + boughtSQL + ` ON bought.sku = p.sku
ORDER BY 1`
}

// serverTime is how long a server is unavailable when a nemesis kills it and starts it again.
const serverTime = 6 * time.Second

// stores are the stores of a purchase.
var stores = loadtest.Setup{Redis: "redis", Postgres: "postgres"}

// failover needs long TTLs: a third of one, after which a lease is renewed, is longer than a failover. Else the paused replica
// would learn at once that its lease is lost. The TTL is the time limit of requests too: else that replica would end its
// request instead of going on with it.
var failover = loadtest.Setup{
	Redis: loadtest.RedisSentinel, TTL: failoverTTL, Args: []string{"--request-timeout", failoverTTL.String()},
	Guard: 30, // so that a replica is soon found between reading and acting
	Inject: func(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		members, err := servers.Members(loadtest.RedisSentinel)
		if err != nil {
			return nil, err
		}
		return redisfault.Failover{
			Name: stack.SentinelMaster, Members: members[:3], Sentinels: members[3:], Prefix: t.Prefix, TTL: failoverTTL, Times: failovers, Replicas: t.Replicas,
		}, nil
	},
}

const (
	failoverTTL = 18 * time.Second
	failovers   = 3 // in a run
)

// faults lists the faults of a purchase's stores and replicas: how each is made, and the evidence required.
var faults = slices.Concat([]loadtest.FaultSpec{
	{Fault: loadtest.NoFault},
	{Fault: LockLost, Store: "redis", Setup: loadtest.Setup{Inject: func(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		client, err := servers.Redis(t.Scenario)
		return redisfault.LockLost{Client: client, Prefix: t.Prefix, Every: 2 * time.Millisecond}, err
	}}, Needs: []loadtest.Need{
		{Evidence: "locks_deleted", Least: 50, Why: "fewer than 50 deletions hit a lock"},
	}},
	{Fault: RedisDown, Store: "redis", Outage: true, Setup: loadtest.Setup{Redis: "redis", Inject: func(servers loadtest.Servers, _ *loadtest.Trial) (fault.Fault, error) {
		members, err := servers.Members("redis")
		if err != nil {
			return nil, err
		}
		return fault.Restart{Server: members[0].Server, Name: "redis", Evidence: "redis_kills", Times: 1, Dead: 0.5}, nil
	}}, Needs: []loadtest.Need{
		{Evidence: "redis_kills", Why: "Redis was not killed"},
		{Evidence: "done_meanwhile", Least: 10, Why: "fewer than 10 purchases succeeded while Redis was down"},
		{Evidence: "lock_calls_after", Why: "no lock call reached Redis after its restart"},
	}},
	{Fault: RedisFailover, Store: "redis", Outage: true, Least: 16 * failovers, Slower: 10, Recovery: serverTime, Setup: failover, Needs: []loadtest.Need{
		{Evidence: "redis_failovers", Least: failovers, Why: "not every round replaced the master of Redis, or a Sentinel was in TILT"},
		{Evidence: "two_holders", Why: "no lock had two holders"},
		{Evidence: "lock_calls_after", Why: "no lock call reached a new master"},
	}},
	loadtest.CrashSpec(
		loadtest.Need{Evidence: "crashes", Least: 5, Why: "fewer than 5 kills of replicas cut a request off"},
		loadtest.Need{Evidence: "cut_off", Why: "no request was cut off by a kill"},
	),
	loadtest.CombinerKilledSpec(), loadtest.CombinerPausedSpec(), loadtest.HangUpSpec(20),
	loadtest.NemesisSpec(serverTime, 1, stores),
	loadtest.AllKilledSpec(loadtest.AllKilled, serverTime, 24, 4, stores), loadtest.AllKilledSpec(loadtest.AllKilledAsync, serverTime, 24, 4, stores),
}, loadtest.StandbySpecs(serverTime, 30, 10, ""))

func summary(r loadtest.Result) string {
	text := fmt.Sprintf("%d of %d units sold", sold(r), units(r.Plan))
	if n := r.Violations["oversold"]; n > 0 {
		text += fmt.Sprintf(", %d of them twice", n)
	}
	return text
}

// sold returns the units that were acknowledged to buyers, less cancelled ones.
func sold(r loadtest.Result) (n int64) {
	for _, record := range r.Records {
		for _, l := range cart(record.Intent) {
			switch {
			case record.Outcome != traffic.OK:
			case record.Action == Buy:
				n += l.Quantity
			case record.Action == Cancel:
				n -= l.Quantity
			}
		}
	}
	return n
}

// buyAgain checks that every product can still be sold: it cancels an order, and buys
// the unit that the cancellation returns. It lists the products for which that fails.
func buyAgain(ctx context.Context, run *traffic.Run, stock []Stock) (dead []string) {
	records := run.History.Records()
	gone := map[uuid.UUID]bool{} // orders that the load was to cancel
	for _, r := range records {
		if of, cancels := r.Of.(Return); cancels {
			gone[of.Order] = true
		}
	}
	cancel, sold := map[string]*traffic.Intent{}, map[string]bool{}
	for _, r := range records {
		if r.Outcome != traffic.OK || r.Action != Buy {
			continue
		}
		lines := cart(r.Intent)
		for _, line := range lines {
			sold[line.SKU] = true
		}
		if len(lines) == 1 && lines[0].Quantity == 1 && !gone[r.Made] { // the last one: the first order is attacked later
			cancel[lines[0].SKU] = cancelIntent("cancel-"+r.Key, r.Client, r)
		}
	}
	settle := func(what string, intents []*traffic.Intent) (done []traffic.Record) {
		for _, r := range run.SettleAll(ctx, 0, intents...) {
			if r.Outcome == traffic.OK {
				done = append(done, r)
			} else {
				dead = append(dead, fmt.Sprintf("%s: the last %s ended as %s", r.Contends[0], what, r.Ended()))
			}
		}
		return done
	}
	for some := range slices.Chunk(stock, againAtOnce) {
		var back, again []*traffic.Intent
		for _, s := range some {
			switch {
			case cancel[s.SKU] != nil:
				back = append(back, cancel[s.SKU])
			case !sold[s.SKU]: // otherwise all orders of it had several units, or were cancelled by the load
				dead = append(dead, s.SKU+": no order of it succeeded")
			}
		}
		for n, r := range settle("cancellation", back) {
			lines := cart(r.Intent)
			again = append(again, buyIntent("final-"+lines[0].SKU, n%clients, lines...))
		}
		settle("purchase", again)
	}
	return dead
}

// againAtOnce is how many products buyAgain tries at once: one by one, hundreds would take too long.
const againAtOnce = 5
