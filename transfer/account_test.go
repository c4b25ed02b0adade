// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/url"

	"github.com/google/uuid"

	"shop/transfer"
)

// account opens an account in EUR.
func (b *bank) account(owner uuid.UUID, opening int64) uuid.UUID {
	b.T.Helper()
	a := transfer.Account{ID: uuid.New(), Owner: owner, Currency: "EUR", Opening: opening}
	opened, err := b.OpenAccount(b.T.Context(), a)
	if err != nil || !opened {
		b.T.Fatalf("OpenAccount: opened %v, %v", opened, err)
	}
	b.total += opening
	return a.ID
}

// pair is two clients with an account each.
type pair struct {
	alice, bob uuid.UUID // clients
	a, b       uuid.UUID // their accounts
}

func (b *bank) pair(openings ...int64) (p pair) {
	p.alice, p.bob = uuid.New(), uuid.New()
	p.a, p.b = b.account(p.alice, openings[0]), b.account(p.bob, openings[1])
	return p
}

func (p pair) move(amount int64) transfer.Move { return euros(p.a, p.b, amount) }
func (p pair) back(amount int64) transfer.Move { return euros(p.b, p.a, amount) }

func euros(from, to uuid.UUID, amount int64) transfer.Move {
	return transfer.Move{From: from, To: to, Amount: amount, Currency: "EUR"}
}

// newRequest returns a request of the client with a new key.
func newRequest(client uuid.UUID) transfer.Request { return requestBy(client, uuid.NewString()) }

func requestBy(client uuid.UUID, key string) transfer.Request {
	return transfer.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte("body"))}
}

// money returns the balance and the held amount of an account.
func (b *bank) money(id uuid.UUID) (balance, held int64) {
	b.T.Helper()
	err := b.Pool.QueryRow(context.Background(), `SELECT balance, held FROM accounts WHERE id = $1`, id).Scan(&balance, &held)
	if err != nil {
		b.T.Fatal(err)
	}
	return balance, held
}

// mustHave checks the balance and the held amount of an account.
func (b *bank) mustHave(id uuid.UUID, balance, held int64) {
	b.T.Helper()
	if gotBalance, gotHeld := b.money(id); gotBalance != balance || gotHeld != held {
		b.T.Errorf("balance %d, held %d, want %d and %d", gotBalance, gotHeld, balance, held)
	}
}

// posted counts the transfers that moved money.
func (b *bank) posted() int64 {
	return b.Number(`SELECT count(*) FROM transfers WHERE state = 'posted'`)
}

// schema is the name of the bank's schema.
func (b *bank) schema() string {
	u, err := url.Parse(b.URL)
	if err != nil {
		b.T.Fatal(err)
	}
	return u.Query().Get("search_path")
}

// isRefused reports whether r, in the default encoding, is a stored refusal.
func isRefused(r transfer.Reply) bool { return bytes.HasPrefix(r.Body, []byte(`{"refused"`)) }

// transferred decodes a Reply in the default encoding, which must be a transfer.
func (b *bank) transferred(r transfer.Reply, err error) (tr transfer.Transfer) {
	b.T.Helper()
	if err != nil || isRefused(r) {
		b.T.Fatalf("%s, %v", r.Body, err)
	}
	if err := json.Unmarshal(r.Body, &tr); err != nil {
		b.T.Fatal(err)
	}
	return tr
}
