// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/locktest"
	"shop/wallet"
	"shop/wallet/mongotest"
)

// endings are the ways in which a request ends: the config that leads to it, the request, and
// whether it panics.
var endings = map[string]struct {
	cfg    func(context.CancelFunc) wallet.Config
	do     func(context.Context, *wallet.Service, pair) (wallet.Reply, error)
	panics bool
}{
	"done":        {nil, credit, false},
	"refused":     {nil, debitTooMuch, false},
	"not found":   {nil, debitNoWallet, false},
	"cancelled":   {cancelled, credit, false},
	"unavailable": {bonus(func() error { return context.DeadlineExceeded }), credit, false},
	"panicked":    {bonus(func() error { panic("the bonus service's client is broken") }), credit, true},
}

func credit(ctx context.Context, s *wallet.Service, p pair) (wallet.Reply, error) {
	return s.Credit(ctx, newRequest(p.alice), p.a, 10)
}

func debitTooMuch(ctx context.Context, s *wallet.Service, p pair) (wallet.Reply, error) {
	return s.Debit(ctx, newRequest(p.alice), p.a, 1000)
}

func debitNoWallet(ctx context.Context, s *wallet.Service, p pair) (wallet.Reply, error) {
	return s.Debit(ctx, newRequest(p.alice), uuid.New(), 10)
}

func cancelled(cancel context.CancelFunc) wallet.Config {
	return wallet.Config{Failpoint: locktest.OnceAt(wallet.AfterGuard, func(context.Context) { cancel() })}
}

// bonus returns a config whose bonus service fails the first time.
func bonus(badly func() error) func(context.CancelFunc) wallet.Config {
	return func(context.CancelFunc) wallet.Config {
		var once sync.Once
		return wallet.Config{Bonus: func(context.Context, wallet.BonusRequest) (_ int64, err error) {
			once.Do(func() { err = badly() })
			return 0, err
		}}
	}
}

// A session that is not ended keeps its transaction, and so locks the wallet, until the server
// ends it. A ticket that does not leave the queue blocks the wallet in the process for ever.
func TestRequest_LeavesNoSessionAndNoTicketBehindHoweverItEnds(t *testing.T) {
	t.Parallel()
	for name, ending := range endings {
		for _, strategy := range safe() {
			for _, queueMax := range []int{0, -1} {
				t.Run(fmt.Sprintf("%s/%s/queue %d", name, strategy, queueMax), func(t *testing.T) {
					t.Parallel()
					c := open(t, wallet.Config{})
					p := c.pair(100, 0)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					cfg := wallet.Config{}
					if ending.cfg != nil {
						cfg = ending.cfg(cancel)
					}
					client := mongotest.Connect(t, c.url)
					cfg.Database, cfg.Strategy, cfg.QueueMax = client.Database(c.db.Name()), strategy, queueMax
					svc, _ := c.another(cfg)
					func() {
						defer func() {
							panics := ending.panics && strategy != "combined" // which tries again
							if p := recover(); (p != nil) != panics {
								t.Errorf("panic: %v", p)
							}
						}()
						_, _ = ending.do(ctx, svc, p)
					}()
					if n := client.NumberSessionsInProgress(); n != 0 {
						t.Errorf("%d sessions are not ended", n)
					}
					c.done(svc.Debit(t.Context(), newRequest(p.alice), p.a, 10)) // by the same process, in the same queue
				})
			}
		}
	}
}

// turns checks that the transactions of one process, all on one wallet, do not overlap: none
// begins before the previous one's commit has been answered.
//
// The server's conflicts do not show that. The snapshot of a transaction is older than the
// oldest commit that is still under way on the server, in any database. So a write of another
// test can hide the previous commit from a transaction that begins after it, which then gets
// WriteConflict.
type turns struct {
	mu     sync.Mutex
	open   map[string]bool  // transactions
	ending map[int64]string // the request that ends one
	begun  int
	early  int // how many began while another one was open
}

func (w *turns) monitor() *event.CommandMonitor {
	w.open, w.ending = map[string]bool{}, map[int64]string{}
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			name := fmt.Sprint(e.Command.Lookup("lsid"), e.Command.Lookup("txnNumber"))
			switch _, err := e.Command.LookupErr("startTransaction"); {
			case err == nil:
				w.begun++
				if len(w.open) > 0 {
					w.early++
				}
				w.open[name] = true
			case e.CommandName == "commitTransaction" || e.CommandName == "abortTransaction":
				w.ending[e.RequestID] = name
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { w.ended(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { w.ended(e.RequestID) },
	}
}

func (w *turns) ended(request int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, w.ending[request])
}

// must fails the test unless there were at least so many transactions, and none overlapped.
func (w *turns) must(t *testing.T, least int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early > 0 || w.begun < least {
		t.Errorf("%d transactions, %d of them began while another one was open; want at least %d, and no overlap", w.begun, w.early, least)
	}
}

// Within one process the operations of one wallet do not overlap: the next one in the queue
// begins after the primary has committed. Each commit is delayed, so that there is time to
// begin too early.
func TestQueue_TheNextRequestBeginsAfterTheCommitAtThePrimary(t *testing.T) {
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			c := open(t, wallet.Config{})
			p := c.pair(100, 0)
			var order turns
			svc, _, client := c.replica(wallet.Config{Strategy: strategy}, order.monitor())
			c.failCommand(client, always, "commitTransaction", bson.E{Key: "blockConnection", Value: true}, bson.E{Key: "blockTimeMS", Value: 20})
			var answers []<-chan outcome
			for range 8 {
				answers = append(answers, locktest.Beside(func() (wallet.Reply, error) { return svc.Credit(t.Context(), newRequest(p.alice), p.a, 10) }))
			}
			for _, answer := range answers {
				c.done((<-answer).Pair())
			}
			least := 8
			if strategy == "combined" {
				least = 2 // the others wait for the second batch
			}
			order.must(t, least)
			c.mustHave(p.a, 100+8*11)
			c.mustHold()
		})
	}
}

// If the driver sees the deadline of a request, it ignores ClientTimeout.
func TestStatement_IsBoundedByTheClientAndNotByTheRequest(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{})
			p := c.pair(100, 100)
			var (
				mu   sync.Mutex
				late []string
			)
			o, err := wallet.ClientOptions(c.url)
			if err != nil {
				t.Fatal(err)
			}
			client, err := mongo.Connect(o.SetMonitor(&event.CommandMonitor{Started: func(ctx context.Context, e *event.CommandStartedEvent) {
				at, dated := ctx.Deadline()
				_, err := e.Command.LookupErr("autocommit")
				checked := err == nil || e.CommandName == "aggregate" || strategy != "naive" && e.CommandName == "find" // naive, the control, has no transaction
				if checked && (!dated || time.Until(at) > wallet.ClientTimeout) {
					mu.Lock()
					defer mu.Unlock()
					late = append(late, fmt.Sprintf("%s %v", e.CommandName, time.Until(at)))
				}
			}}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
			svc, _ := c.another(wallet.Config{Database: client.Database(c.db.Name()), Strategy: strategy})
			c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(10)))
			mu.Lock()
			defer mu.Unlock()
			if len(late) > 0 {
				t.Errorf("may take longer than %v: %q", wallet.ClientTimeout, late)
			}
		})
	}
}

// Outside of a transaction, reads and writes have concern majority or stronger. A transaction
// reads a snapshot. None of that is left to the connection string.
func TestCommands_ReadAndWriteWithMajorityOrSnapshot(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{})
			p := c.pair(100, 100)
			svc, w := c.watched(wallet.Config{Strategy: strategy})
			req := newRequest(p.alice)
			c.done(svc.Credit(t.Context(), req, p.a, 10))
			c.done(svc.Credit(t.Context(), req, p.a, 10)) // replayed
			c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(10)))
			if reply, err := debitTooMuch(t.Context(), svc, p); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v", reply.Body, err)
			}
			if _, err := svc.Wallet(t.Context(), p.alice, p.a); err != nil {
				t.Error(err)
			}
			if _, err := svc.OpenWallet(t.Context(), wallet.Wallet{ID: uuid.New(), Owner: p.alice, Currency: "EUR"}); err != nil {
				t.Error(err)
			}
			if _, err := wallet.Purge(t.Context(), w.db, wallet.KeysKept); err != nil {
				t.Error(err)
			}
			if unsure, looked := w.unsure(); len(unsure) > 0 || looked < 6 {
				t.Errorf("of %d commands, these have a weaker concern than majority: %q", looked, unsure)
			}
		})
	}
}

// unsure returns the commands whose concern is weaker than majority. It checks the first
// statements of transactions, and the commands outside of them, and counts these.
func (w *commandLog) unsure() (found []string, looked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, command := range w.sent {
		name := command.Index(0).Key()
		level, _ := command.Lookup("readConcern", "level").StringValueOK()
		writes, _ := command.Lookup("writeConcern", "w").StringValueOK()
		_, err := command.LookupErr("startTransaction")
		begins := err == nil
		_, err = command.LookupErr("autocommit")
		sure := true
		switch {
		case begins:
			sure = level == "snapshot"
		case err == nil:
			continue // its concern is that of the first statement
		case slices.Contains([]string{"find", "aggregate"}, name):
			sure = slices.Contains([]string{"majority", "snapshot", "linearizable"}, level)
		case slices.Contains([]string{"insert", "update", "delete", "findAndModify"}, name):
			sure = writes == "majority"
		default:
			continue
		}
		looked++
		if !sure {
			found = append(found, fmt.Sprintf("%s with read concern %q, write concern %q", name, level, writes))
		}
	}
	return found, looked
}
