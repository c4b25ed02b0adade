// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

// seedCmd creates the demo data. A second run changes nothing and cannot print the keys
// again, because only their hashes are stored; --rotate makes new keys.
type seedCmd struct {
	stores
	Rotate bool `help:"Give the demo's clients new keys; the old ones stop working."`
}

// The demo: an administrator, and two customers that cannot read each other's orders, accounts and wallets.
var (
	demoClients = []struct {
		name  string
		admin bool
	}{{"alice", false}, {"bob", false}, {"admin", true}}

	demoProducts = []inventory.Product{
		{SKU: "coffee", Name: "Coffee, 250 g", Price: 890, Currency: "EUR", Stock: 1000},
		{SKU: "tea", Name: "Tea, 100 g", Price: 640, Currency: "EUR", Stock: 500},
		{SKU: "ticket", Name: "Concert ticket", Price: 4900, Currency: "EUR", Stock: 50},
		{SKU: "vinyl", Name: "Signed record", Price: 2900, Currency: "EUR", Stock: 20, ClientMax: new(int64(2))},
		{SKU: "last-one", Name: "The last one", Price: 9900, Currency: "EUR", Stock: 1},
	}

	demoMoney = map[string]int64{"alice": 100_000, "bob": 50_000} // opening balances of accounts, in cents
	demoCash  = map[string]int64{"alice": 10_000, "bob": 5_000}   // opening balances of wallets, in cents
)

func (c *seedCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	wallets, err := c.openWallets(ctx) // may fail, so it comes before the keys, which are printed only once
	if err != nil {
		return err
	}
	defer disconnect(wallets)
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return err
	}
	for _, p := range demoProducts {
		created, err := service.AddProduct(ctx, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "# product %s: %s\n", p.SKU, said(created, inStock(p), "exists"))
	}
	for _, client := range demoClients {
		if err := c.seedClient(ctx, pool, out, client.name, client.admin); err != nil {
			return err
		}
	}
	if err := seedAccounts(ctx, pool, out); err != nil || wallets == nil {
		return err
	}
	return seedWallets(ctx, pool, wallets, out)
}

// inStock describes the stock of a product, and its limit if it has one.
func inStock(p inventory.Product) string {
	if p.ClientMax == nil {
		return fmt.Sprintf("%d in stock", p.Stock)
	}
	return fmt.Sprintf("%d in stock, at most %d for each client", p.Stock, *p.ClientMax)
}

// seedClient prints a line that a shell can read: eval "$(shop seed)".
func (c *seedCmd) seedClient(ctx context.Context, pool *pgxpool.Pool, out io.Writer, name string, admin bool) error {
	_, key, err := api.AddClient(ctx, pool, name, admin)
	if errors.Is(err, api.ErrClientExists) {
		if !c.Rotate {
			fmt.Fprintf(out, "# client %s: exists; its key was printed when it was created (for new keys: shop seed --rotate)\n", name)
			return nil
		}
		key, err = api.RotateKey(ctx, pool, name)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "export SHOP_KEY_%s=%s\n", strings.ToUpper(name), key)
	return nil
}

// seedAccounts gives each customer an account. The account's id is derived from the
// client's, so concurrent seeds create one account and every run prints the same id.
func seedAccounts(ctx context.Context, pool *pgxpool.Pool, out io.Writer) error {
	service, err := transfer.New(transfer.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return err
	}
	return seedEach(ctx, pool, out, "account", demoMoney, func(id, owner uuid.UUID, opening int64) (bool, error) {
		return service.OpenAccount(ctx, transfer.Account{ID: id, Owner: owner, Currency: "EUR", Opening: opening})
	})
}

// seedWallets gives each customer a wallet, in the same way.
func seedWallets(ctx context.Context, pool *pgxpool.Pool, db *mongo.Database, out io.Writer) error {
	service, err := wallet.New(wallet.Config{Database: db})
	if err != nil {
		return err
	}
	return seedEach(ctx, pool, out, "wallet", demoCash, func(id, owner uuid.UUID, opening int64) (bool, error) {
		return service.OpenWallet(ctx, wallet.Wallet{ID: id, Owner: owner, Currency: "EUR", Opening: opening})
	})
}

// seedEach opens an account or a wallet for each customer, and prints its id.
func seedEach(ctx context.Context, pool *pgxpool.Pool, out io.Writer, what string, openings map[string]int64, open func(id, owner uuid.UUID, opening int64) (bool, error)) error {
	clients, err := api.Clients(ctx, pool)
	if err != nil {
		return err
	}
	for _, client := range clients {
		opening, demo := openings[client.Name]
		if !demo {
			continue
		}
		id := demoID(client.ID, what)
		opened, err := open(id, client.ID, opening)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "# %s of %s: %s\n", what, client.Name, said(opened, fmt.Sprintf("%d.%02d EUR", opening/100, opening%100), "exists"))
		fmt.Fprintf(out, "export SHOP_%s_%s=%s\n", strings.ToUpper(what), strings.ToUpper(client.Name), id)
	}
	return nil
}

// demoID is the id of a client's account or wallet.
func demoID(client uuid.UUID, what string) uuid.UUID { return uuid.NewSHA1(client, []byte(what)) }

// said returns one of two texts.
func said(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}
