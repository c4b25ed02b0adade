package main

import (
	"context"
	"fmt"
	"time"

	walletflow "shop/loadtest/scenario/wallet"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/replicafault"
	"shop/wallet"
)

// walletReplica keeps wallets with the scenario's strategy.
func (e *environment) walletReplica(t *loadtest.Trial, p *loadtest.Program) error {
	s, own := t.Scenario, walletflow.Of(t)
	urls, err := e.proxyMongo(s, own.Mongo)
	if err != nil {
		return err
	}
	between := widening
	if s.Fault == loadtest.Pause { // so that there is a transaction to stop between lock and commit
		between *= 5
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

// proxyMongo gives each replica its own way to MongoDB: through a proxy, where it leads to
// one and the same primary all the time.
func (e *environment) proxyMongo(s loadtest.Scenario, databaseURL string) ([]string, error) {
	e.closeProxies()
	urls := make([]string, e.settings.Replicas)
	for n := range urls {
		urls[n] = databaseURL
		if s.Fault != loadtest.NoFault && s.Fault != walletflow.CommitUnknown {
			continue
		}
		w, err := mongofault.NewProxy(databaseURL)
		if err != nil {
			return nil, err
		}
		e.mongoProxies = append(e.mongoProxies, w)
		urls[n] = w.URL()
	}
	return urls, nil
}

// wireReport is what the proxies saw of the replicas, by the rules of the strategy.
func (e *environment) wireReport(s loadtest.Scenario) (all walletflow.WireReport) {
	for n, w := range e.mongoProxies {
		transactions, breaches := w.Breaches(s.Strategy)
		all.Transactions += transactions
		for _, b := range breaches {
			all.Breaches = append(all.Breaches, fmt.Sprintf("replica %d: %s", n+1, b))
		}
	}
	return all
}

// walletFault breaks replicas, commits or members of the replica set.
func (e *environment) walletFault(t *loadtest.Trial) (fault.Fault, error) {
	s := t.Scenario
	if s.Fault == loadtest.Crash {
		var steps []string
		for _, step := range wallet.Steps() {
			steps = append(steps, string(step))
		}
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: "wallet", Steps: steps, Wait: stepWait}, nil
	}
	set, err := e.mongoSet(mongoKind(s))
	if err != nil {
		return nil, err
	}
	switch s.Fault {
	case loadtest.Pause:
		aim := func(ctx context.Context) bool { return mongofault.Abandoned(ctx, set, aimWait) }
		return replicafault.Pauses{Replicas: t.Replicas, TTL: transactionLifetime(s), Aim: aim}, nil
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

// openWallets makes the plan's clients and their wallets.
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
	at, err := connstring.Parse(mongoURL)
	if err != nil {
		return nil, err
	}
	db := client.Database(at.Database)
	service, err := wallet.New(wallet.Config{Database: db})
	if err != nil {
		return nil, err
	}
	clients, err := addClients(ctx, pool, t.Plan)
	if err != nil {
		return nil, err
	}
	for _, seed := range walletflow.Seeds(t.Plan) {
		w := wallet.Wallet{ID: seed.ID, Owner: clients[seed.Client].ID, Currency: seed.Currency, Opening: seed.Opening}
		if _, err := service.OpenWallet(ctx, w); err != nil {
			return nil, err
		}
	}
	return clients, nil
}
