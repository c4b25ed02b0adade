// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/cmd/shop/api"
	"shop/cmd/shop/lab"
	"shop/inventory"
	"shop/wallet"
)

// labShop is this replica, for the page of the shop in the lab.
func (c *serveCmd) labShop(a *app, service *inventory.Service) lab.Shop {
	return lab.Shop{
		Pool:      a.pool,
		Customers: func(ctx context.Context) ([]lab.Customer, error) { return demoCustomers(ctx, a.pool) },
		API:       func(client uuid.UUID) http.Handler { return a.server.As(client) },
		Products:  service.Products,
		Account:   a.transfers.books.Account,
		Wallet: func(ctx context.Context, client, id uuid.UUID) (wallet.Wallet, error) {
			wallets, err := a.wallets.with("")
			if err != nil {
				return wallet.Wallet{}, err
			}
			return wallets.Wallet(ctx, client, id)
		},
		Down: func(ctx context.Context) []lab.Outage {
			degraded, err := a.ready(ctx, service)
			return outages(degraded, err, a.wallets.db == nil)
		},
		Strategies: map[string][]string{"orders": strategyNames(), "transfers": c.Transfers.offered(), "wallets": walletStrategyNames()},
	}
}

// demoCustomers finds the clients of the demo that have an account and a wallet, which seed has made.
func demoCustomers(ctx context.Context, pool *pgxpool.Pool) (list []lab.Customer, err error) {
	clients, err := api.Clients(ctx, pool)
	for _, client := range clients {
		if _, demo := demoMoney[client.Name]; demo {
			list = append(list, lab.Customer{ID: client.ID, Name: client.Name, Account: demoID(client.ID, "account"), Wallet: demoID(client.ID, "wallet")})
		}
	}
	return list, err
}

// outages says which stores are down, and what that means for the page.
func outages(degraded api.Degraded, postgres error, noMongo bool) (list []lab.Outage) {
	if postgres != nil {
		list = append(list, lab.Outage{Store: "PostgreSQL", Means: "does not reply: nothing can be bought or transferred, and what you see is old. Start it again; this page continues by itself."})
	}
	if degraded.Locks {
		list = append(list, lab.Outage{Store: "Redis", Means: "does not reply: purchases go on with row locks alone, and redis-only sells nothing."})
	}
	if degraded.Transfers {
		list = append(list, lab.Outage{Store: "etcd", Means: "does not reply: transfers that lock there are refused, and nothing is moved. Choose row or serializable, or start etcd again."})
	}
	switch {
	case noMongo:
		list = append(list, lab.Outage{Store: "MongoDB", Means: "is not configured: there are no wallets. Set --mongo-url or SHOP_MONGO_URL."})
	case degraded.Wallets:
		list = append(list, lab.Outage{Store: "MongoDB", Means: "does not reply: requests for wallets are refused, and nothing is moved. Start it again; this page continues by itself."})
	}
	return list
}
