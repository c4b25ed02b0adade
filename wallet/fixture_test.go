// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/wallet"
	"shop/wallet/mongotest"
)

type (
	events  = locktest.Counts[wallet.EventKind] // what the Service reports
	outcome = locktest.Outcome[wallet.Reply]
)

// fixture is a database of its own on the real server, a bonus service of its own, and a Service
// on both.
type fixture struct {
	*wallet.Service
	t      testing.TB
	url    string
	db     *mongo.Database
	cfg    wallet.Config
	bonus  *bonusService
	events *events
}

// open makes a database, migrates it, and opens a Service on it with cfg. The
// bonus service gives a tenth of each credit.
func open(t testing.TB, cfg wallet.Config) *fixture {
	t.Helper()
	return openAt(t, servertest.Env(t, "SHOP_MONGO_URL"), cfg)
}

func openAt(t testing.TB, url string, cfg wallet.Config) *fixture {
	t.Helper()
	c := &fixture{t: t, url: url, bonus: newBonusService(t)}
	c.db, _ = mongotest.Database(t, url)
	if err := wallet.Migrate(t.Context(), c.db); err != nil {
		t.Fatal(err)
	}
	c.cfg = cfg
	c.cfg.Database = c.db
	if c.cfg.Bonus == nil {
		c.cfg.Bonus = c.bonus.call
	}
	c.Service, c.events = c.another(c.cfg)
	return c
}

// in returns the same fixture for a subtest.
func (c *fixture) in(t testing.TB) *fixture {
	own := *c
	own.t = t
	return &own
}

// another opens another Service, as another process would.
func (c *fixture) another(cfg wallet.Config) (*wallet.Service, *events) {
	c.t.Helper()
	e := &events{}
	if cfg.Count == nil {
		cfg.Count = e.Count
	}
	svc, err := wallet.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return svc, e
}

// wallet opens a wallet in EUR.
func (c *fixture) wallet(owner uuid.UUID, opening int64) uuid.UUID {
	c.t.Helper()
	id := uuid.New()
	opened, err := c.OpenWallet(c.t.Context(), wallet.Wallet{ID: id, Owner: owner, Currency: "EUR", Opening: opening})
	if err != nil || !opened {
		c.t.Fatalf("OpenWallet: opened %v, %v", opened, err)
	}
	return id
}

// pair is two clients with a wallet each.
type pair struct {
	alice, bob uuid.UUID // clients
	a, b       uuid.UUID // their wallets
}

func (c *fixture) pair(openings ...int64) (p pair) {
	p.alice, p.bob = uuid.New(), uuid.New()
	p.a, p.b = c.wallet(p.alice, openings[0]), c.wallet(p.bob, openings[1])
	return p
}

func (p pair) pay(amount int64) wallet.Payment {
	return wallet.Payment{From: p.a, To: p.b, Amount: amount}
}

func (p pair) payBack(amount int64) wallet.Payment {
	return wallet.Payment{From: p.b, To: p.a, Amount: amount}
}

// newRequest returns a request of the client with a new key.
func newRequest(client uuid.UUID) wallet.Request { return requestBy(client, uuid.NewString()) }

func requestBy(client uuid.UUID, key string) wallet.Request {
	return wallet.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte("body"))}
}

// until repeats a request with the same key until it has a final answer, as a client
// does after ErrBusy or ErrOutcomeUnknown.
func until(ctx context.Context, do func() (wallet.Reply, error)) (wallet.Reply, error) {
	for {
		reply, err := do()
		again := errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown)
		if !again || ctx.Err() != nil {
			return reply, err
		}
	}
}

// done checks that the operation happened.
func (c *fixture) done(reply wallet.Reply, err error) {
	c.t.Helper()
	if err != nil || isRefused(reply) {
		c.t.Errorf("%s, %v: want it done", reply.Body, err)
	}
}

func isRefused(reply wallet.Reply) bool { return strings.Contains(string(reply.Body), "refused") }

// patient returns a ctx for the test's own commands: a member that was restarted may need more
// than ClientTimeout to catch up, which applies where a ctx has no deadline.
func (c *fixture) patient() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c.t.Cleanup(cancel)
	return ctx
}

// mustHave checks the balance of a wallet.
func (c *fixture) mustHave(id uuid.UUID, balance int64) {
	c.t.Helper()
	var w wallet.Wallet
	if err := c.db.Collection("wallets").FindOne(c.patient(), bson.D{{Key: "_id", Value: id}}).Decode(&w); err != nil {
		c.t.Fatal(err)
	}
	if w.Balance != balance {
		c.t.Errorf("balance %d, want %d", w.Balance, balance)
	}
}

// operations counts the stored operations, refusals included.
func (c *fixture) operations() int64 {
	c.t.Helper()
	n, err := c.db.Collection("wallet_operations").CountDocuments(c.patient(), bson.D{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}
