// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/scenario/money"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/loadtest/site"
	"shop/wallet"
)

// walletReplica completes a program whose replicas serve wallets with the scenario's strategy.
func (e *environment) walletReplica(t *loadtest.Trial, p *site.Program) error {
	s, own := t.Scenario, walletflow.Of(t)
	urls, err := proxied(e, s, own.Mongo, &e.mongoProxies, mongofault.NewProxy) // to the primary, not to the set
	if err != nil {
		return err
	}
	if urls, err = e.linked(s, "mongo", urls); err != nil {
		return err
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, e.settings.RedisURL), []string{
			"--strategy", "row", "--transfer-strategy", "row",
			"--postgres-url", t.Postgres, "--etcd-endpoints", e.settings.Etcd,
			"--wallet-strategy", s.Strategy, "--mongo-url", urls[n], "--bonus-url", own.Bonus,
		}, widened(s, "wallet/after-guard", s.Setup().Guard))
	}
	return nil
}

// wireReport sums up what the proxies saw of the replicas, by the rules of the strategy.
func (e *environment) wireReport(s loadtest.Scenario) (all walletflow.WireReport) {
	for n, w := range e.mongoProxies {
		transactions, breaches := w.Breaches(s.Strategy)
		all.Transactions += transactions
		all.Conflicts += w.Conflicts()
		for _, b := range breaches {
			all.Breaches = append(all.Breaches, fmt.Sprintf("replica %d: %s", n+1, b))
		}
	}
	return all
}

// openWallets creates the plan's clients and wallets.
func openWallets(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) ([]loadtest.Credentials, error) {
	mongoURL := walletflow.Of(t).Mongo
	options, err := wallet.ClientOptions(mongoURL)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	db := client.Database(t.Prefix)
	service, err := wallet.New(wallet.Config{Database: db})
	if err != nil {
		return nil, err
	}
	clients, err := addClients(ctx, pool, t)
	if err != nil {
		return nil, err
	}
	for _, seed := range money.Accounts(t.Plan) {
		w := wallet.Wallet{ID: seed.ID, Owner: clients[seed.Client].ID, Currency: seed.Currency, Opening: seed.Opening}
		if _, err := service.OpenWallet(ctx, w); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

// lifetime is how long MongoDB keeps the transaction of a silent client. The pause of a replica must outlast it, and the
// request must still have time left when the replica continues.
func (e *environment) lifetime(s loadtest.Scenario) time.Duration {
	return cmp.Or(s.Setup().Lifetime, lockTTLs["wallet"])
}

// mongoURL returns the URL of the server for a scenario's wallets.
func (e *environment) mongoURL(s loadtest.Scenario) (string, error) {
	kind := s.Setup().Mongo
	if kind == "" {
		return e.settings.MongoURL, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	// A set that an earlier scenario has broken is not used again: for a minute its members avoid a
	// member that did not answer, which would be a second fault.
	if err := e.retire(ctx, kind); err != nil {
		return "", err
	}
	set, err := e.Members(kind)
	if err != nil {
		return "", err
	}
	return e.private[kind].Env["SHOP_MONGO_URL"], mongofault.Lifetime(ctx, set, int(e.lifetime(s).Seconds()))
}

// compare returns where the members of a scenario's private replica set differ. Other sets have a single
// member.
func (e *environment) compare(ctx context.Context, s loadtest.Scenario, database string) (m walletflow.Members, err error) {
	kind := s.Setup().Mongo
	if kind != loadtest.MongoThree {
		return m, nil
	}
	set, err := e.Members(kind)
	if err != nil {
		return m, err
	}
	m.Compared = true
	if m.Apart, err = mongofault.Agree(ctx, set, database); err != nil {
		return m, err
	}
	m.RolledBack, err = mongofault.RolledBack(ctx, set, database)
	return m, err
}
