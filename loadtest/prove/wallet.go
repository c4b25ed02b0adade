// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/replicafault"
	"shop/loadtest/scenario/money"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/wallet"
)

// walletReplica completes a program whose replicas serve wallets with the scenario's strategy.
func (e *environment) walletReplica(t *loadtest.Trial, p *loadtest.Program) error {
	s, own := t.Scenario, walletflow.Of(t)
	urls, err := e.proxyMongo(s, own.Mongo)
	if err != nil {
		return err
	}
	if urls, err = e.linked(s, "mongo", urls); err != nil {
		return err
	}
	between := widening
	switch s.Fault {
	case loadtest.Pause: // it must hit a transaction between lock and commit
		between *= 5
	case loadtest.CombinerPaused, loadtest.HangUp: // requests must wait for a batch, however fast the machine is
		between *= 25
	}
	p.Args = func(n int, listen, metrics string) []string {
		return append(e.serve(listen, metrics, t.Prefix, e.settings.RedisURL),
			"--strategy", "row", "--transfer-strategy", "row",
			"--postgres-url", t.Postgres, "--etcd-endpoints", e.settings.Etcd,
			"--wallet-strategy", s.Strategy, "--mongo-url", urls[n], "--bonus-url", own.Bonus,
			"--failpoint", "wallet/after-guard=exp:"+between.String())
	}
	return nil
}

// proxyMongo returns the database URL of each replica: through a proxy of its own to the primary, without a
// fault and under the faults listed here; otherwise that of the replica set itself.
func (e *environment) proxyMongo(s loadtest.Scenario, databaseURL string) (urls []string, err error) {
	e.closeProxies()
	switch s.Fault {
	case loadtest.NoFault, walletflow.CommitUnknown, loadtest.Nemesis, loadtest.CrashMatrix:
	default:
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

// walletFault returns a fault of replicas, of commits, or of members of the replica set.
func (e *environment) walletFault(t *loadtest.Trial) (fault.Fault, error) {
	s := t.Scenario
	set, err := e.members(mongoKind(s))
	if err != nil {
		return nil, err
	}
	switch s.Fault {
	case loadtest.Pause, loadtest.CombinerPaused:
		aim := func(ctx context.Context) ([]string, error) { return mongofault.Abandoned(ctx, set, aimWait) }
		pauses := replicafault.Pauses{Replicas: t.Replicas, TTL: transactionLifetime(s), Aim: aim}
		if s.Fault == loadtest.CombinerPaused {
			pauses.InBatch = t.Replicas.PauseInBatch
		}
		return pauses, nil
	case walletflow.StepDown:
		return mongofault.StepDown{Set: set, Times: 2}, nil
	case walletflow.PrimaryPause:
		return mongofault.PrimaryPause{Set: set, Times: 1}, nil
	case walletflow.PrimaryKill:
		return mongofault.PrimaryKill{Set: set, Times: 1}, nil
	case walletflow.CommitUnknown:
		return mongofault.CommitUnknown{Proxies: e.mongoProxies, Every: 100 * time.Millisecond, Phase: 700 * time.Millisecond}, nil
	}
	return nil, fmt.Errorf("no such fault: %q", s.Fault)
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

// mongoKind returns the kind of private replica set that a scenario needs: three members, to lose one, or
// one member, because the transactions of killed replicas must end sooner than a server's default. "": it
// uses the shared server.
func mongoKind(s loadtest.Scenario) string {
	switch {
	case s.Flow.Name != "wallet" || s.Fault == loadtest.NoFault:
		return ""
	case s.Fault == loadtest.CrashMatrix:
		return "mongo"
	}
	return "mongo3"
}

// transactionLifetime is how long MongoDB keeps the transaction of a silent client. The pause of a replica
// must outlast it, and the request must still have time left when the replica continues.
func transactionLifetime(s loadtest.Scenario) time.Duration {
	if s.Fault == loadtest.Pause || s.Fault == loadtest.CombinerPaused || s.Fault == loadtest.CrashMatrix {
		return time.Second
	}
	return lockTTLs["wallet"]
}

// aimWait is more than a third longer than a running replica is silent within a transaction (see Abandoned). The longest
// of many calls of the bonus service, which a batch makes side by side, takes about 50 ms.
const aimWait = 150 * time.Millisecond

// mongoURL returns the URL of the server for a scenario's wallets.
func (e *environment) mongoURL(s loadtest.Scenario) (string, error) {
	kind := mongoKind(s)
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
	return e.private[kind].Env["SHOP_MONGO_URL"], mongofault.Lifetime(ctx, set, int(transactionLifetime(s).Seconds()))
}

// compare returns where the members of a scenario's private replica set differ. Other sets have a single
// member.
func (e *environment) compare(ctx context.Context, s loadtest.Scenario, database string) (m walletflow.Members, err error) {
	kind := mongoKind(s)
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
