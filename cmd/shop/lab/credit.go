// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency"
	"shop/wallet"
	"shop/wallet/bonus"
)

// creditFlow credits one wallet.
var creditFlow = &flow{
	Name: "wallet", Title: "A race for a wallet",
	About: "Two strategies make the same credits to one wallet at the same time, each on two replicas that are started for the race, with a real MongoDB. Each credit is of 1000.00 EUR, and a bonus service adds some cents. At the end MongoDB compares the balance with the credits, and the bonus service lists its calls.",
	Size:  "Credits",
	Words: map[string]string{"done": "credited", "refused": "refused", "paused": "what its transactions had locked stayed locked", "what": "credits acknowledged, and credits in the balance"},
	Figures: []Figure{
		{Key: "acknowledged", Label: "acknowledged", Curve: "bad"},
		{Key: "applied", Label: "in the balance", Curve: "good"},
		{Key: "drift", Label: "drift", Unit: "EUR"},
		{Key: "twice", Label: "bonus twice"},
	},
	Strategies: strategies(wallet.Strategies()),
	Faults: map[Fault]string{
		Pause: "Twice, the replica of a credit stops for a second after it has read the wallet. What it has locked stays locked.",
		Cut:   "Twice, all connections to MongoDB are cut, and refused for a second. The bonus service may then be called again: no lock prevents that.",
	},
	Default:    Settings{Strategies: []string{"naive", "lockid"}, Clients: 32, Size: 60, Fault: NoFault},
	Invariants: append(slices.Clone(wallet.Invariants.Invariants), wallet.SideEffects),
	requests:   1, moments: []moment{read}, dropEvery: 1,
	open: openCredit,
}

// credited is the amount of a credit, in cents. It is more than all bonuses of a race together, so that a balance shows
// how many credits are in it.
const credited = 1000_00

// credit is the scene of creditFlow.
type credit struct {
	site
	lane   *lane
	db     *mongo.Database // of the audit
	bonus  *bonus.Service
	wallet uuid.UUID
	locks  bool // MongoDB excludes others from the read to the commit
}

func openCredit(ctx context.Context, p site, l *lane) (_ scene, err error) {
	c := &credit{site: p, lane: l, wallet: owner, locks: l.strategy.Safe || l.strategy.Name == "lock-late"}
	l.pauseTime = time.Second
	if c.db, err = c.connect(l, nil); err != nil {
		return nil, err
	}
	if err := wallet.Migrate(ctx, c.db); err != nil {
		return nil, err
	}
	for _, name := range []string{"wallets", "wallet_entries", "wallet_operations"} {
		if _, err := c.db.Collection(name).DeleteMany(ctx, bson.D{}); err != nil {
			return nil, err
		}
	}
	if c.bonus, err = bonus.Serve(); err != nil {
		return nil, err
	}
	l.onClose(func() { _ = c.bonus.Close() })
	service, err := wallet.New(wallet.Config{Database: c.db})
	if err != nil {
		return nil, err
	}
	l.onClose(service.Close)
	_, err = service.OpenWallet(ctx, wallet.Wallet{ID: c.wallet, Owner: owner, Currency: "EUR"})
	return c, err
}

// connect makes a client of the lane's database, over a link if there is one.
func (c *credit) connect(l *lane, over *link) (*mongo.Database, error) {
	client, shop, err := mongoClient(c.Config, over)
	if err != nil {
		return nil, err
	}
	l.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
	})
	name := shop + "_" + c.name
	if len(name) > nameMax {
		return nil, fmt.Errorf("lab: the database %s would have a name of more than %d bytes", name, nameMax)
	}
	return client.Database(name), nil
}

func (c *credit) replica(_ context.Context, r *replica) (act, error) {
	db, err := c.connect(c.lane, &r.locks)
	if err != nil {
		return nil, err
	}
	client := bonus.NewClient(c.bonus.URL(), nil)
	c.lane.onClose(client.Close)
	service, err := wallet.New(wallet.Config{
		Database: db, Bonus: client.Call, Strategy: c.lane.strategy.Name, Encode: encode[wallet.Operation], Count: counts[wallet.EventKind](c.lane.record),
		QueueMax:  4 * clientsMax, // a client may have a quarter of it
		Failpoint: func(ctx context.Context, step wallet.Step, _ string) { c.step(ctx, r, step) },
	})
	if err != nil {
		return nil, err
	}
	c.lane.onClose(service.Close)
	return func(ctx context.Context, req idempotency.Request, _ int) (idempotency.Reply, error) {
		return service.Credit(ctx, req, c.wallet, credited)
	}, nil
}

// step records the lock, which is a write to the wallet, and the call of the bonus service.
func (c *credit) step(ctx context.Context, r *replica, step wallet.Step) {
	note := func(kind string) { c.lane.record.add(Event{Attempt: r.attempt(ctx), Kind: kind}) }
	switch step {
	case wallet.AfterAcquire:
		attempt := r.locked(ctx)
		if n, ok := ctx.Value(attemptKey{}).(int); ok { // a request, or the only one of a batch
			attempt = n
		}
		c.lane.record.waited(attempt)
	case wallet.AfterGuard:
		if c.locks {
			note("acquired")
		}
	case wallet.AfterCall:
		note("called")
	}
	r.step(ctx, string(step))
	if step == wallet.AfterCommit && c.locks {
		note("released")
	}
}

// count compares the balance with the credits that were acknowledged, at one moment, and reads the calls.
func (c *credit) count(ctx context.Context) (Figures, error) {
	var found []struct{ Balance, Credits, Due int64 }
	err := wallet.Aggregate(ctx, c.db, "wallets", `
		{"$lookup": {"from": "wallet_operations", "localField": "_id", "foreignField": "wallet", "as": "done"}},
		{"$project": {"balance": 1, "credits": {"$size": "$done"}, "due": {"$add": [{"$sum": "$done.amount"}, {"$sum": "$done.bonus"}]}}}`, &found)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("lab: %d wallets", len(found))
	}
	if err != nil {
		return nil, err
	}
	calls, twice := map[uuid.UUID]int{}, int64(0)
	for _, call := range c.bonus.Calls() {
		if calls[call.Operation]++; calls[call.Operation] == 2 {
			twice++
		}
	}
	w := found[0]
	return Figures{
		"acknowledged": w.Credits, "applied": w.Balance / credited, "lost": max(0, w.Credits-w.Balance/credited),
		"missing": w.Due - w.Balance, "drift": max(w.Due-w.Balance, w.Balance-w.Due), "twice": twice,
	}, nil
}

func (c *credit) audit(ctx context.Context, f Figures) (map[string]int64, string, error) {
	broken, err := wallet.Audit(ctx, c.db)
	if err != nil {
		return nil, "", err
	}
	if c.lane.settings.Fault == NoFault { // under a fault only the effects of a call are bound to be one
		broken[wallet.SideEffects.Code] = c.calledAgain()
	}
	text := fmt.Sprintf("%d credits, each of them in the balance", f["acknowledged"])
	switch {
	case f["lost"] == 1:
		text = fmt.Sprintf("1 credit was lost: %s are missing", euros(f["missing"]))
	case f["lost"] > 1:
		text = fmt.Sprintf("%d credits were lost: %s are missing", f["lost"], euros(f["missing"]))
	case f["missing"] != 0:
		text = fmt.Sprintf("the balance differs from its credits by %s", euros(f["drift"]))
	}
	switch f["twice"] {
	case 0:
		text += "; no bonus asked for twice"
	case 1:
		text += "; the bonus service was called twice for 1 credit"
	default:
		text += fmt.Sprintf("; the bonus service was called twice for %d credits", f["twice"])
	}
	return broken, text, nil
}

// calledAgain counts the requests that called the bonus service more than once.
func (c *credit) calledAgain() (n int64) {
	calls := map[uuid.UUID]int{}
	for _, call := range c.bonus.Calls() {
		if calls[call.Request]++; calls[call.Request] == 2 {
			n++
		}
	}
	return n
}
