package wallet_test

import (
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"shop/wallet"
)

// books is all that is stored, at one moment.
type books struct {
	wallets    []wallet.Wallet
	entries    []wallet.Entry
	operations []operation
}

type operation struct {
	wallet.Operation `bson:",inline"`
	Key              string
	Refused          string
}

func (c *till) books() (b books) {
	c.t.Helper()
	session, err := c.db.Client().StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(c.patient(), session)
	defer session.EndSession(ctx)
	db := c.db.Client().Database(c.db.Name(), options.Database().SetReadConcern(&readconcern.ReadConcern{}))
	for name, into := range map[string]any{"wallets": &b.wallets, "wallet_entries": &b.entries, "wallet_operations": &b.operations} {
		cursor, err := db.Collection(name).Find(ctx, bson.D{})
		if err != nil {
			c.t.Fatal(err)
		}
		if err := cursor.All(ctx, into); err != nil {
			c.t.Fatal(err)
		}
	}
	return b
}

// broken checks the invariants and lists what does not hold.
func (c *till) broken() (list []string) {
	c.t.Helper()
	b := c.books()
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	sums, of := map[uuid.UUID]int64{}, map[uuid.UUID]map[uuid.UUID]int64{}
	for _, e := range b.entries {
		sums[e.Wallet] += e.Delta
		if of[e.Operation] == nil {
			of[e.Operation] = map[uuid.UUID]int64{}
		}
		of[e.Operation][e.Wallet] += e.Delta
	}
	var difference int64
	for _, w := range b.wallets {
		difference += w.Balance - w.Opening - sums[w.ID]
		if w.Balance < 0 || w.Balance != w.Opening+sums[w.ID] {
			say("M2: wallet %s has %d, its entries say %d", w.ID, w.Balance, w.Opening+sums[w.ID])
		}
	}
	if difference != 0 {
		say("M1: the balances have %d more than openings and entries", difference)
	}
	keys := map[string]bool{}
	for _, op := range b.operations {
		if key := op.Client.String() + op.Key; keys[key] {
			say("M3: key %s twice", op.Key)
		} else {
			keys[key] = true
		}
		if want := op.want(); fmt.Sprint(of[op.ID]) != fmt.Sprint(want) {
			say("M2: %s %s has entries %v, want %v", op.Kind, op.ID, of[op.ID], want)
		}
		delete(of, op.ID)
	}
	for id := range of {
		say("M2: entries without operation %s", id)
	}
	return append(list, c.side(b)...)
}

// want is what an operation should have added, by wallet.
func (op operation) want() map[uuid.UUID]int64 {
	switch {
	case op.Refused != "":
		return nil
	case op.Kind == wallet.Credit:
		return map[uuid.UUID]int64{op.Wallet: op.Amount + op.Bonus}
	case op.Kind == wallet.Debit:
		return map[uuid.UUID]int64{op.Wallet: -op.Amount}
	default:
		return map[uuid.UUID]int64{op.Wallet: -op.Amount, *op.To: op.Amount}
	}
}

// side compares the balances' bonuses with what the outside has given.
func (c *till) side(b books) (list []string) {
	c.outside.mu.Lock()
	defer c.outside.mu.Unlock()
	for _, op := range b.operations {
		if given := c.outside.given[op.ID]; op.Kind == wallet.Credit && op.Bonus != given.Amount/10 {
			list = append(list, fmt.Sprintf("W-SIDE: operation %s has a bonus of %d, the outside gave %d", op.ID, op.Bonus, given.Amount/10))
		}
	}
	return list
}

// mustHold fails the test if an invariant is broken.
func (c *till) mustHold() {
	c.t.Helper()
	for _, line := range c.broken() {
		c.t.Error(line)
	}
}

// mustBreak fails the test if a negative control broke nothing.
func (c *till) mustBreak() {
	c.t.Helper()
	if len(c.broken()) == 0 {
		c.t.Error("the invariants hold: the control did not fail, or the check is blind")
	}
}
