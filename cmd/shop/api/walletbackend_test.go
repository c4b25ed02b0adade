// SPDX-License-Identifier: MIT

package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking"
	"shop/locking/servertest"
	"shop/wallet"
	"shop/wallet/mongotest"
)

// walletBackend is the backend of the wallet routes: a database of its own in the real
// MongoDB, and a bonus service that gives a tenth, unless it fails.
type walletBackend struct {
	*wallet.Service
	db *mongo.Database

	mu       sync.Mutex
	requests []wallet.BonusRequest
	fails    error
}

func (c *walletBackend) bonus(_ context.Context, a wallet.BonusRequest) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, a)
	return a.Amount / 10, c.fails
}

// breaks makes the bonus service fail from now on; nil repairs it.
func (c *walletBackend) breaks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = err
}

func (c *walletBackend) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// openWalletBackend has no wallets, unless an option adds them.
func (s *shop) openWalletBackend(front *api.Config) {
	if front.Wallets == nil {
		front.Wallets = func(string) (*wallet.Service, error) {
			return nil, fmt.Errorf("%w: no MongoDB", locking.ErrBusy)
		}
	}
}

// openWallets opens a shop with wallets.
func openWallets(t *testing.T, options ...option) *shop {
	t.Helper()
	db, _ := mongotest.Database(t, servertest.Env(t, "SHOP_MONGO_URL"))
	if err := wallet.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	c := &walletBackend{db: db}
	c.Service = c.serve(t, db)
	s := open(t, append(options, func(front *api.Config, _ *inventory.Config) { front.Wallets = c.by })...)
	s.walletBackend = c
	return s
}

func (c *walletBackend) by(strategy string) (*wallet.Service, error) {
	return c.With(cmp.Or(strategy, "lockid"))
}

// serve makes a Service on db, which backends may share.
func (c *walletBackend) serve(t *testing.T, db *mongo.Database) *wallet.Service {
	t.Helper()
	return must(wallet.New(wallet.Config{Database: db, Bonus: c.bonus, Encode: api.EncodeWallet}))(t)
}

// wallet opens a wallet of the owner.
func (s *shop) wallet(owner string, opening int64) string {
	s.t.Helper()
	return s.walletIn("EUR", owner, opening)
}

func (s *shop) walletIn(currency, owner string, opening int64) string {
	s.t.Helper()
	w := wallet.Wallet{ID: must(uuid.NewV7())(s.t), Owner: s.ids[owner], Currency: currency, Opening: opening}
	if _, err := s.walletBackend.OpenWallet(s.t.Context(), w); err != nil {
		s.t.Fatal(err)
	}
	return w.ID.String()
}

// cash writes to a wallet as alice: how is credits, debits or payments.
func (s *shop) cash(key, id, how, body string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/wallets/"+id+"/"+how, body, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

func (s *shop) credit(key, id, amount string, headers ...string) answer {
	s.t.Helper()
	return s.cash(key, id, "credits", amountOf(amount), headers...)
}

func (s *shop) debit(key, id, amount string, headers ...string) answer {
	s.t.Helper()
	return s.cash(key, id, "debits", amountOf(amount), headers...)
}

func (s *shop) pay(key, id, to, amount string, headers ...string) answer {
	s.t.Helper()
	return s.cash(key, id, "payments", paymentOf(to, amount), headers...)
}

func amountOf(amount string, more ...string) string {
	return fmt.Sprintf(`{"amount":%s%s}`, amount, strings.Join(more, ""))
}

func paymentOf(to, amount string, more ...string) string {
	return fmt.Sprintf(`{"to":%q,"amount":%s%s}`, to, amount, strings.Join(more, ""))
}

func (a answer) operation(t *testing.T) (out api.WalletOperation) {
	t.Helper()
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

// wantCash checks a wallet through the API, as its owner.
func (s *shop) wantCash(owner, id string, balance int64) (w api.Wallet) {
	s.t.Helper()
	if err := json.Unmarshal(s.do("GET", "/v1/wallets/"+id, "", s.as(owner)).want(s.t, 200, "").body, &w); err != nil {
		s.t.Fatal(err)
	}
	if w.Balance != balance {
		s.t.Errorf("%s has %d, want %d", id, w.Balance, balance)
	}
	return w
}

// documents counts the stored operations, including refusals.
func (s *shop) documents() (n int64) {
	s.t.Helper()
	for _, name := range []string{"wallet_operations", "wallet_entries"} {
		n += must(s.walletBackend.db.Collection(name).CountDocuments(s.t.Context(), bson.D{}))(s.t)
	}
	return n
}

var errBonusDown = errors.New("the bonus service is down")
