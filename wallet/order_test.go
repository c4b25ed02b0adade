// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/locktest"
	"shop/wallet"
)

// commandLog records the commands that a client has sent, in order.
type commandLog struct {
	db   *mongo.Database // through that client
	mu   sync.Mutex
	sent []bson.Raw
}

func (w *commandLog) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent = append(w.sent, slices.Clone(e.Command))
	}}
}

// names returns the commands of the transactions, with their collections. Each transaction
// starts with "begin".
func (w *commandLog) names(t *testing.T) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, command := range w.sent {
		first := command.Index(0)
		if _, err := command.LookupErr("txnNumber"); err != nil {
			continue
		}
		if _, err := command.LookupErr("startTransaction"); err == nil {
			names = append(names, "begin")
			concern, err := command.LookupErr("readConcern", "level")
			if err != nil || concern.StringValue() != "snapshot" {
				t.Errorf("a transaction begins with read concern %v", concern)
			}
		}
		name := first.Key()
		if collection, ok := first.Value().StringValueOK(); ok {
			name += " " + strings.TrimPrefix(collection, "wallet_")
		}
		names = append(names, name)
	}
	return names
}

// count returns how many commands of a name were sent.
func (w *commandLog) count(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, command := range w.sent {
		if command.Index(0).Key() == name {
			n++
		}
	}
	return n
}

// concerns returns the write concerns of all commits.
func (w *commandLog) concerns() (levels []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, command := range w.sent {
		if command.Index(0).Key() == "commitTransaction" {
			levels = append(levels, command.Lookup("writeConcern", "w").String())
		}
	}
	return levels
}

// lockIDs returns the ids that locks have written.
func (w *commandLog) lockIDs() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, command := range w.sent {
		if id, err := command.LookupErr("update", "$set", "lockId"); err == nil {
			ids = append(ids, id.String())
		}
	}
	return ids
}

// watched opens a Service whose commands are recorded.
func (c *fixture) watched(cfg wallet.Config) (*wallet.Service, *commandLog) {
	c.t.Helper()
	w := &commandLog{}
	o, err := wallet.ClientOptions(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := mongo.Connect(o.SetMonitor(w.monitor()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	w.db = client.Database(c.db.Name())
	cfg.Database, cfg.Bonus = w.db, c.bonus.call
	svc, _ := c.another(cfg)
	return svc, w
}

// Nothing comes before the lock: a snapshot that is older than the lock can only cause a conflict.
// And no statement is outside of the transaction.
func TestLockID_TheLockIsTheFirstStatementAndAllAreInTheTransaction(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 100)
	svc, w := c.watched(wallet.Config{})
	c.done(svc.Credit(t.Context(), newRequest(p.alice), p.a, 10))
	c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(10)))
	want := []string{
		"begin", "findAndModify wallets", "find operations",
		"findAndModify wallets", "insert entries", "insert operations", "commitTransaction", "commitTransaction",
		"begin", "findAndModify wallets", "findAndModify wallets", "find operations",
		"findAndModify wallets", "findAndModify wallets", "insert entries", "insert operations", "commitTransaction", "commitTransaction",
	}
	if got := w.names(t); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// A lockId that the previous attempt has already written would lock nothing.
func TestLockID_IsNewInEachAttempt(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 100)
	svc, w := c.watched(wallet.Config{Failpoint: locktest.OnceAt(wallet.BeforeCommit, func(ctx context.Context) {
		c.admin(bson.D{{Key: "killSessions", Value: bson.A{mongo.SessionFromContext(ctx).ID()}}})
	})})
	c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(10)))
	ids := w.lockIDs()
	if distinct := slices.Compact(slices.Sorted(slices.Values(ids))); len(ids) != 4 || len(distinct) != 4 {
		t.Errorf("two attempts at two wallets locked with %q", ids)
	}
}
