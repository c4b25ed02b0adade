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
	"shop/loadtest/crashmatrix"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/replicafault"
	"shop/loadtest/scenario/money"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/loadtest/site"
	"shop/wallet"
)

// walletReplica completes a program whose replicas serve wallets with the scenario's strategy.
func (e *environment) walletReplica(t *loadtest.Trial, p *site.Program) error {
	s, own := t.Scenario, walletflow.Of(t)
	urls, err := e.proxyMongo(s, own.Mongo)
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
		}, widened(s, "wallet/after-guard", e.setup(s).guard))
	}
	return nil
}

// proxyMongo returns the database URL of each replica: through a proxy of its own to the primary where the fault has
// proxies; otherwise that of the replica set itself.
func (e *environment) proxyMongo(s loadtest.Scenario, databaseURL string) (urls []string, err error) {
	e.closeProxies()
	if !e.setup(s).proxied {
		return slices.Repeat([]string{databaseURL}, e.settings.Replicas), nil
	}
	e.mongoProxies, urls, err = through(e.settings.Replicas, databaseURL, mongofault.NewProxy)
	return urls, err
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

// walletSetups are the faults of wallets: of replicas, of commits, or of members of the replica set. A set has three
// members, to lose one, or one alone where the transactions of killed replicas must end sooner than a server's default.
func walletSetups() map[loadtest.Fault]setup {
	own := withAll(map[loadtest.Fault]setup{
		loadtest.NoFault:        {proxied: true, inject: func(*environment, *loadtest.Trial) (fault.Fault, error) { return fault.None{}, nil }},
		loadtest.Nemesis:        {proxied: true, links: true, inject: (*environment).nemesis},
		crashmatrix.Name:        {mongo: "mongo", proxied: true, links: true, lifetime: time.Second, inject: crashMatrix},
		loadtest.HangUp:         {guard: 25, inject: hangUp},                                   // requests must wait for a batch, however fast the machine is
		loadtest.Pause:          {guard: 5, lifetime: time.Second, inject: pauseInTransaction}, // it must hit a transaction between lock and commit
		loadtest.CombinerPaused: {guard: 25, lifetime: time.Second, start: stopInBatch, inject: pauseInTransaction},
		loadtest.AllKilled:      {inject: allKilled(loadtest.AllKilledTimes, "mongo3")},
		walletflow.StepDown:     {inject: ofSet(func(set []fault.Member) fault.Fault { return mongofault.StepDown{Set: set, Times: 2} })},
		walletflow.PrimaryPause: {inject: ofSet(func(set []fault.Member) fault.Fault { return mongofault.PrimaryPause{Set: set, Times: 1} })},
		walletflow.PrimaryKill:  {inject: ofSet(func(set []fault.Member) fault.Fault { return mongofault.PrimaryKill{Set: set, Times: 1} })},
		walletflow.CommitUnknown: {proxied: true, inject: func(e *environment, _ *loadtest.Trial) (fault.Fault, error) {
			return mongofault.CommitUnknown{Proxies: e.mongoProxies, Every: 100 * time.Millisecond, Phase: 700 * time.Millisecond}, nil
		}},
	})
	for name, s := range own {
		if name != loadtest.NoFault && s.mongo == "" {
			s.mongo = "mongo3"
			own[name] = s
		}
	}
	return own
}

// ofSet makes a fault of a private replica set.
func ofSet(of func(set []fault.Member) fault.Fault) func(*environment, *loadtest.Trial) (fault.Fault, error) {
	return func(e *environment, t *loadtest.Trial) (fault.Fault, error) {
		set, err := e.members(e.setup(t.Scenario).mongo)
		return of(set), err
	}
}

// pauseInTransaction pauses replicas that have a transaction open, for longer than MongoDB keeps it.
func pauseInTransaction(e *environment, t *loadtest.Trial) (fault.Fault, error) {
	set, err := e.members(e.setup(t.Scenario).mongo)
	pauses := replicafault.Pauses{Replicas: t.Replicas, TTL: e.lifetime(t.Scenario), Aim: func(ctx context.Context) ([]string, error) {
		return mongofault.Abandoned(ctx, set, aimWait)
	}}
	if t.Scenario.Fault == loadtest.CombinerPaused {
		pauses.InBatch = t.Replicas.PauseInBatch
	}
	return pauses, err
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
	return cmp.Or(e.setup(s).lifetime, lockTTLs["wallet"])
}

// aimWait is more than a third longer than a running replica is silent within a transaction (see Abandoned). The longest
// of many calls of the bonus service, which a batch makes side by side, takes about 50 ms.
const aimWait = 150 * time.Millisecond

// mongoURL returns the URL of the server for a scenario's wallets.
func (e *environment) mongoURL(s loadtest.Scenario) (string, error) {
	kind := e.setup(s).mongo
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
	set, err := e.members(kind)
	if err != nil {
		return "", err
	}
	return e.private[kind].Env["SHOP_MONGO_URL"], mongofault.Lifetime(ctx, set, int(e.lifetime(s).Seconds()))
}

// compare returns where the members of a scenario's private replica set differ. Other sets have a single
// member.
func (e *environment) compare(ctx context.Context, s loadtest.Scenario, database string) (m walletflow.Members, err error) {
	kind := e.setup(s).mongo
	if kind != "mongo3" {
		return m, nil
	}
	set, err := e.members(kind)
	if err != nil {
		return m, err
	}
	if m.Apart, err = mongofault.Agree(ctx, set, database); err != nil {
		return m, err
	}
	m.RolledBack, err = mongofault.RolledBack(ctx, set, database)
	return m, err
}
