// SPDX-License-Identifier: MIT

package wallet_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"shop/locking/locktest"
	"shop/wallet"
)

// A batch that began while another process has the wallet would leave behind all that come while it waits.
func TestCombined_TakesABatchWhenTheOtherProcessHasLeftTheWallet(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{Strategy: "combined"})
	client := uuid.New()
	id := c.wallet(client, 0)
	pause, reached, resume := locktest.PauseAt(wallet.AfterGuard)
	other, _ := c.another(wallet.Config{Database: c.db, Strategy: "lockid", Bonus: c.bonus.call, Failpoint: pause})
	theirs := locktest.Beside(func() (wallet.Reply, error) { return other.Credit(t.Context(), newRequest(client), id, 10) })
	<-reached
	c.Contend(id)
	credit := func() (wallet.Reply, error) { return c.Credit(t.Context(), newRequest(client), id, 10) }
	first := locktest.Beside(credit)
	locktest.Eventually(t, "the first meets the lock of the other process", func() bool { return c.events.Of(wallet.Conflict) > 0 })
	queued := c.Queued()
	second := locktest.Beside(credit)
	locktest.Eventually(t, "the second waits", func() bool { return c.Queued() == queued+1 })
	resume()
	var made [2]wallet.Operation
	for n, o := range []outcome{<-first, <-second} {
		c.done(o.Pair())
		if err := json.Unmarshal(o.Reply.Body, &made[n]); err != nil {
			t.Error(err)
		}
	}
	c.done((<-theirs).Pair())
	if one, two := made[0].CreatedAt, made[1].CreatedAt; !one.Equal(two) {
		t.Errorf("done at %v and at %v, want one transaction for both", one, two)
	}
	c.mustHold()
}
