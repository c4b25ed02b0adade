// SPDX-License-Identifier: MIT

package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/etcdlock"
	"shop/locking/servertest"
	"shop/transfer"
)

// openTransferBackend moves money with row locks, unless an option sets another backend.
func (s *shop) openTransferBackend(front *api.Config) {
	s.t.Helper()
	s.transfers = must(transfer.New(transfer.Config{Pool: s.pool, Strategy: "row", Encode: api.EncodeTransfer}))(s.t)
	front.Books = s.transfers
	if front.Transfers == nil {
		front.Transfers = func(strategy string) (*transfer.Service, error) { return s.transfers.With(cmp.Or(strategy, "row")) }
	}
}

// locksIn returns a lock store in the real etcd, with a prefix that servers may share.
func locksIn(t *testing.T, prefix string) *etcdlock.Store {
	t.Helper()
	config := etcdlock.Config(strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")...)
	config.Logger = zap.NewNop()
	client := must(clientv3.New(config))(t)
	t.Cleanup(func() { _ = client.Close() })
	store := must(etcdlock.New(t.Context(), client, 30*time.Second, etcdlock.Options{Prefix: prefix}))(t)
	t.Cleanup(store.Close)
	return store
}

// withEtcd moves money under locks in the real etcd, as the shop does.
func withEtcd(t *testing.T) option {
	t.Helper()
	store := locksIn(t, uuid.NewString())
	return func(front *api.Config, _ *inventory.Config) {
		service := must(transfer.New(transfer.Config{Pool: front.Pool, Locks: store, Epoch: store.Epoch(), Encode: api.EncodeTransfer}))(t)
		front.Transfers = func(string) (*transfer.Service, error) { return service, nil }
	}
}

// account opens an account of the owner.
func (s *shop) account(owner string, opening int64) string {
	s.t.Helper()
	a := transfer.Account{ID: must(uuid.NewV7())(s.t), Owner: s.ids[owner], Currency: "EUR", Opening: opening}
	if _, err := s.transfers.OpenAccount(s.t.Context(), a); err != nil {
		s.t.Fatal(err)
	}
	return a.ID.String()
}

func moveOf(from, to, amount string, more ...string) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"amount":%s,"currency":"EUR"%s}`, from, to, amount, strings.Join(more, ""))
}

const pending = `,"pending":true,"expires_in":"15m"`

// move transfers as alice.
func (s *shop) move(key, body string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/transfers", body, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

// settle posts or voids.
func (s *shop) settle(key, id, how, body string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/transfers/"+id+"/"+how, body, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

// lapse makes a hold expire.
func (s *shop) lapse(id string) {
	s.t.Helper()
	s.exec(`
		UPDATE transfers
		SET created_at = created_at - interval '1 day', expires_at = created_at - interval '1 hour'
		WHERE id = $1`, id)
}

func (a answer) transfer(t *testing.T) (out api.Transfer) {
	t.Helper()
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

func (a answer) id(t *testing.T) string { return a.transfer(t).ID.String() }

// wantMoney checks an account through the API, as its owner.
func (s *shop) wantMoney(owner, id string, balance, held int64) (a api.Account) {
	s.t.Helper()
	if err := json.Unmarshal(s.do("GET", "/v1/accounts/"+id, "", s.as(owner)).want(s.t, 200, "").body, &a); err != nil {
		s.t.Fatal(err)
	}
	if a.Balance != balance || a.Held != held || a.Available != balance-held {
		s.t.Errorf("%s: balance %d, held %d, available %d; want %d, %d", id, a.Balance, a.Held, a.Available, balance, held)
	}
	return a
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// count reads a number from the database.
func (s *shop) count(of string) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM `+of).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
