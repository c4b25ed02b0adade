// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"shop/locking/locktest"
	"shop/wallet"
)

// Not parallel: a server has one failCommand.

// A commit is sent again, and then not answered. For the driver the transaction is committed,
// and its commit still under way: it must not take the next transaction of the session for it.
func TestSession_IsUsableAfterACommitThatTimedOut(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	silent := bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: (wallet.ClientTimeout + wallet.ClientTimeout/4).Milliseconds()}}
	for _, queueMax := range []int{0, -1} {
		t.Run(fmt.Sprintf("queue %d", queueMax), func(t *testing.T) {
			c := open(t, wallet.Config{})
			p := c.pair(100, 0)
			var (
				svc    *wallet.Service
				events *events
				client string
				first  sync.Once
			)
			svc, events, client = c.replica(wallet.Config{QueueMax: queueMax}, &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if e.CommandName == "commitTransaction" {
					first.Do(func() { c.failCommand(client, times(1), "commitTransaction", silent...) })
				}
			}})
			c.failCommand(client, times(1), "commitTransaction", commitFaults["write concern timed out"]...)
			req, inTime := newRequest(p.alice), true
			c.done(until(t.Context(), func() (wallet.Reply, error) {
				reply, err := svc.Credit(t.Context(), req, p.a, 30)
				inTime = inTime && err == nil
				return reply, err
			}))
			if a, r := events.Of(wallet.Ambiguous), events.Of(wallet.Resolved); a == 0 || inTime && (a != 1 || r != 1) {
				t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
			}
			c.mustHave(p.a, 133)
			c.mustHold()
		})
	}
}
