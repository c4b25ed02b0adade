// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
	"shop/wallet"
)

// The primary steps down under load, twice, and is elected again. All open transactions are
// aborted, and commits lose their answers. The operation that orders the step-down waits for
// it with its transaction open, so at least one transaction is aborted.
func TestPrimary_ThatStepsDownCostsNoMoneyAndNoSecondBonus(t *testing.T) {
	locktest.Slow(t, "three members and an election")
	url := stacktest.Private(t, "mongo")[0].Env["SHOP_MONGO_URL"]
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			var operations atomic.Int32
			c := openAt(t, url, wallet.Config{Strategy: strategy})
			c.cfg.Failpoint = func(_ context.Context, step wallet.Step, _ string) {
				if step != wallet.BeforeCommit {
					return
				}
				if n := operations.Add(1); n == 20 || n == 40 {
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // in place of the client's 2 s
					defer cancel()
					// The command may have no answer: it can be lost with the connection.
					_ = c.db.Client().Database("admin").RunCommand(ctx, bson.D{
						{Key: "replSetStepDown", Value: 1}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}, {Key: "force", Value: true},
					}).Err()
				}
			}
			c.Service, c.events = c.another(c.cfg)
			c.cfg.Count = c.events.Count // the open transaction may be of churn's other replica
			c.churn(60, 2)
			if n := c.operations(); n != 60 {
				t.Errorf("%d answers, want 60", n)
			}
			if c.events.Of(wallet.Transient)+c.events.Of(wallet.Ambiguous) == 0 { // ambiguous: no primary answered the commit in time
				t.Errorf("the fault did not land: %v", c.events)
			}
			c.mustHold()
		})
	}
}
