// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/locktest"
	"shop/wallet"
)

// The tests of this file are not parallel: a server has one failCommand.

// replica opens a Service on a client of its own. The server knows the client by name.
func (c *fixture) replica(cfg wallet.Config, watch ...*event.CommandMonitor) (svc *wallet.Service, e *events, name string) {
	c.t.Helper()
	name = "wallet-" + uuid.NewString()
	o, err := wallet.ClientOptions(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, monitor := range watch {
		o.SetMonitor(monitor)
	}
	client, err := mongo.Connect(o.SetAppName(name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	cfg.Database, cfg.Bonus = client.Database(c.db.Name()), c.bonus.call
	svc, e = c.another(cfg)
	return svc, e, name
}

// failCommand makes the server fail a command of a client, until off is called or the test ends.
func (c *fixture) failCommand(client string, mode any, command string, how ...bson.E) (off func()) {
	c.t.Helper()
	data := append(bson.D{{Key: "failCommands", Value: bson.A{command}}, {Key: "appName", Value: client}}, how...)
	c.admin(bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: mode},
		{Key: "data", Value: data},
	})
	off = func() {
		c.admin(bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}})
	}
	c.t.Cleanup(off)
	return off
}

func (c *fixture) admin(command bson.D) {
	c.t.Helper()
	if err := c.db.Client().Database("admin").RunCommand(c.patient(), command).Err(); err != nil {
		c.t.Fatal(err)
	}
}

const always = "alwaysOn"

func times(n int) bson.D { return bson.D{{Key: "times", Value: n}} }

// commitFaults are the ways in which a commit fails although it may have been done.
var commitFaults = map[string]bson.D{
	"applied but not acknowledged": {{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 91}, {Key: "errmsg", Value: "shutting down"}}}},
	"write concern timed out":      {{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}},
	"connection lost":              {{Key: "closeConnection", Value: true}},
	"time expired":                 {{Key: "errorCode", Value: 50}},
}

func TestCommit_WithUnknownResultIsDecidedByTheSameKey(t *testing.T) {
	for _, strategy := range safe() {
		c := open(t, wallet.Config{})
		svc, _, client := c.replica(wallet.Config{Strategy: strategy})
		for name, fault := range commitFaults {
			for _, n := range []int{1, 5} {
				t.Run(fmt.Sprintf("%s/%d/%s", strings.ReplaceAll(name, " ", "-"), n, strategy), func(t *testing.T) {
					c := c.in(t)
					p := c.pair(100, 0)
					c.failCommand(client, times(n), "commitTransaction", fault...)
					c.done(svc.Credit(t.Context(), newRequest(p.alice), p.a, 30))
					c.mustHave(p.a, 133)
					c.mustHold()
				})
			}
		}
	}
}

// The request ends at the deadline of its ctx. Its error is ErrOutcomeUnknown, and a request
// with the same key resolves it.
func TestCommit_ThatStaysUnknownIsReportedAndTheSameKeyResolvesIt(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	for _, name := range []string{"applied but not acknowledged", "time expired", "connection lost"} { // the last leaves the transaction open at the server
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := open(t, wallet.Config{})
			p := c.pair(100, 0)
			svc, events, client := c.replica(wallet.Config{})
			off := c.failCommand(client, always, "commitTransaction", commitFaults[name]...)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			req := newRequest(p.alice)
			_, err := svc.Credit(ctx, req, p.a, 30)
			if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) || events.Of(wallet.Ambiguous) == 0 || events.Of(wallet.Resolved) != 0 {
				t.Errorf("%v, want ErrOutcomeUnknown; %d ambiguous, %d resolved", err, events.Of(wallet.Ambiguous), events.Of(wallet.Resolved))
			}
			debit := newRequest(p.alice)
			c.done(until(t.Context(), func() (wallet.Reply, error) { return c.Debit(t.Context(), debit, p.a, 1) })) // by another process: the wallet is not locked
			off()
			c.done(until(t.Context(), func() (wallet.Reply, error) { return svc.Credit(t.Context(), req, p.a, 30) }))
			c.mustHave(p.a, 132)
			c.mustHold()
		})
	}
}

// The driver does not retry this commit. The next WithTransaction resolves it.
func TestCommit_UnknownIsCountedAndResolved(t *testing.T) {
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	svc, events, client := c.replica(wallet.Config{})
	c.failCommand(client, times(1), "commitTransaction", bson.E{Key: "errorCode", Value: 50}) // MaxTimeMSExpired
	reply, err := svc.Credit(t.Context(), newRequest(p.alice), p.a, 30)
	c.done(reply, err)
	if a, r := events.Of(wallet.Ambiguous), events.Of(wallet.Resolved); a != 1 || r != 1 {
		t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
	}
	c.mustHave(p.a, 133)
	c.mustHold()
}

// The primary has committed, the turn was passed on, and then the commit with majority fails. The
// requests wait for their turn again: otherwise all of them would collide at the wallet.
func TestCommit_UnknownAfterLeavingTheQueueQueuesAgain(t *testing.T) {
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	const requests = 16
	var order turns
	svc, events, client := c.replica(wallet.Config{}, order.monitor())
	c.failCommand(client, bson.D{{Key: "activationProbability", Value: 0.5}}, "commitTransaction",
		bson.E{Key: "errorCode", Value: 251}, bson.E{Key: "errorLabels", Value: bson.A{"TransientTransactionError"}})
	var answers []<-chan outcome
	for range requests {
		req := newRequest(p.alice)
		answers = append(answers, locktest.Beside(func() (wallet.Reply, error) {
			return until(t.Context(), func() (wallet.Reply, error) { return svc.Credit(t.Context(), req, p.a, 10) })
		}))
	}
	for _, answer := range answers {
		c.done((<-answer).Pair())
	}
	if events.Of(wallet.Ambiguous) == 0 {
		t.Error("no commit was ambiguous")
	}
	order.must(t, requests)
	c.mustHave(p.a, 100+requests*11)
	c.mustHold()
}

// The first attempt may have taken the money. The next one must not refuse for lack of it.
func TestCommit_UnknownIsNeverAnsweredWithARefusal(t *testing.T) {
	c := open(t, wallet.Config{})
	svc, _, client := c.replica(wallet.Config{})
	for name, fault := range commitFaults {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := c.in(t)
			p := c.pair(100, 0)
			c.failCommand(client, times(3), "commitTransaction", fault...)
			req := newRequest(p.alice)
			c.done(until(t.Context(), func() (wallet.Reply, error) { return svc.Debit(t.Context(), req, p.a, 100) }))
			c.mustHave(p.a, 0)
			c.mustHold()
		})
	}
}

// An attempt that fails before the commit has done nothing, and all of it runs again. If the
// callback did not return the error, half an operation would be committed.
func TestStatement_ThatFailsIsRunAgainFromTheBeginning(t *testing.T) {
	c := open(t, wallet.Config{})
	for _, at := range [][2]string{{"findAndModify", "wallets"}, {"find", "wallet_operations"}, {"insert", "wallet_entries"}, {"insert", "wallet_operations"}} {
		for name, fault := range map[string]bson.D{
			"conflict":        {{Key: "errorCode", Value: 112}, {Key: "errorLabels", Value: bson.A{"TransientTransactionError"}}},
			"not-primary":     {{Key: "errorCode", Value: 10107}, {Key: "errorLabels", Value: bson.A{"TransientTransactionError"}}},
			"connection-lost": {{Key: "closeConnection", Value: true}},
		} {
			t.Run(at[0]+"-"+at[1]+"/"+name, func(t *testing.T) {
				c := c.in(t)
				p := c.pair(100, 0)
				svc, events, client := c.replica(wallet.Config{})
				c.failCommand(client, times(1), at[0], append(fault, bson.E{Key: "namespace", Value: c.db.Name() + "." + at[1]})...)
				c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(30)))
				if events.Of(wallet.Retried)+events.Of(wallet.Conflict) == 0 {
					t.Error("the fault did not land, or the attempt went on")
				}
				c.mustHave(p.a, 70)
				c.mustHave(p.b, 30)
				c.mustHold()
			})
		}
	}
}

func TestStatement_ThatKeepsFailingIsBusyAndTheKeyIsOpen(t *testing.T) {
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	svc, _, client := c.replica(wallet.Config{})
	off := c.failCommand(client, always, "insert", bson.E{Key: "errorCode", Value: 112}, bson.E{Key: "errorLabels", Value: bson.A{"TransientTransactionError"}})
	req := newRequest(p.alice)
	if _, err := svc.Credit(t.Context(), req, p.a, 30); !errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrBusy", err)
	}
	off()
	c.mustHave(p.a, 100)
	c.done(svc.Credit(t.Context(), req, p.a, 30))
	c.mustHave(p.a, 133)
	c.mustHold()
}
