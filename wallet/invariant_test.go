// SPDX-License-Identifier: MIT

package wallet_test

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking/invariant"
	"shop/wallet"
)

// broken lists what breaks the invariants. It leaves out "I-ONCE answers", which needs the
// status of the replies: the default Encode stores none.
func (c *fixture) broken() (list []string) {
	c.t.Helper()
	checks := slices.DeleteFunc(slices.Clone(wallet.Invariants.Checks), func(k invariant.Check) bool { return k.Name == "I-ONCE answers" })
	findings, err := invariant.Run(c.patient(), checks, wallet.Pipelines(c.db))
	if err != nil {
		c.t.Fatal(err)
	}
	for name, f := range findings {
		if f.Count > 0 {
			list = append(list, fmt.Sprintf("%s: %v", name, f.IDs))
		}
	}
	stored := c.stored()
	c.bonus.mu.Lock()
	defer c.bonus.mu.Unlock()
	for _, op := range stored {
		if given := c.bonus.given[op.ID]; op.Kind == wallet.Credit && op.Bonus != given.Amount/10 {
			list = append(list, fmt.Sprintf("W-SIDE: operation %s has a bonus of %d, the bonus service gave %d", op.ID, op.Bonus, given.Amount/10))
		}
	}
	return list
}

// stored returns all operations, refusals included.
func (c *fixture) stored() (all []wallet.Operation) {
	c.t.Helper()
	ctx := c.patient()
	cursor, err := c.db.Collection("wallet_operations").Find(ctx, bson.D{})
	if err == nil {
		err = cursor.All(ctx, &all)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// mustHold fails the test if an invariant is broken.
func (c *fixture) mustHold() {
	c.t.Helper()
	for _, line := range c.broken() {
		c.t.Error(line)
	}
}

// mustBreak fails the test if a negative control broke nothing.
func (c *fixture) mustBreak() {
	c.t.Helper()
	if len(c.broken()) == 0 {
		c.t.Error("the invariants hold: the control did not fail, or the check is blind")
	}
}
