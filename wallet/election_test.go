package wallet_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/wallet"
)

// The primary steps down under load, twice, and is elected again. All open
// transactions are aborted, commits lose their answers. An operation waits for the
// step-down with its transaction open: one at least is aborted.
func TestPrimary_ThatStepsDownCostsNoMoneyAndNoSecondBonus(t *testing.T) {
	url := private(t)
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			var operations atomic.Int32
			c := openAt(t, url, wallet.Config{Strategy: strategy})
			c.cfg.Failpoint = func(_ context.Context, step wallet.Step, _ string) {
				if step != wallet.BeforeCommit {
					return
				}
				if n := operations.Add(1); n == 20 || n == 40 {
					// Its answer is lost with the connection, if it has none.
					_ = c.db.Client().Database("admin").RunCommand(context.Background(), bson.D{
						{Key: "replSetStepDown", Value: 1}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}, {Key: "force", Value: true},
					}).Err()
				}
			}
			c.Service, c.events = c.another(c.cfg)
			c.churn(60, 2)
			if n := c.operations(); n != 60 {
				t.Errorf("%d answers, want 60", n)
			}
			if c.events.of(wallet.Transient) == 0 {
				t.Errorf("the fault did not land: %v", c.events.n)
			}
			c.mustHold()
		})
	}
}
