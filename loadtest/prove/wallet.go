package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"shop/cmd/shop/api"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/wallet"
)

// walletReplica keeps wallets with the scenario's strategy.
func (e *environment) walletReplica(p *loadtest.Program, s loadtest.Scenario, stores loadtest.Stores, lockPrefix string) error {
	urls, err := e.wireMongo(s, stores.Mongo)
	if err != nil {
		return err
	}
	between := widening
	if s.Fault == loadtest.Pause { // so that there is somebody to stop between lock and commit
		between *= 5
	}
	p.Args = func(n int, listen, metrics string) []string {
		return append(e.serve(listen, metrics, lockPrefix, e.settings.RedisURL),
			"--strategy", "row", "--transfer-strategy", "row",
			"--postgres-url", stores.Postgres, "--etcd-endpoints", e.settings.Etcd,
			"--wallet-strategy", s.Strategy, "--mongo-url", urls[n], "--bonus-url", stores.Bonus,
			"--failpoint", "wallet/after-guard=exp:"+between.String())
	}
	return nil
}

// wireMongo gives each replica its own way to MongoDB: one with somebody on it who
// listens, where it leads to one and the same primary all the time.
func (e *environment) wireMongo(s loadtest.Scenario, databaseURL string) ([]string, error) {
	e.unwire()
	urls := make([]string, e.settings.Replicas)
	for n := range urls {
		urls[n] = databaseURL
		if s.Fault != loadtest.NoFault && s.Fault != loadtest.CommitUnknown {
			continue
		}
		w, err := mongofault.NewWire(databaseURL)
		if err != nil {
			return nil, err
		}
		e.tapped = append(e.tapped, w)
		urls[n] = w.URL()
	}
	return urls, nil
}

// overheard is what the wires heard of the replicas, by the rules of the strategy.
func (e *environment) overheard(s loadtest.Scenario) (all loadtest.Overheard) {
	for n, w := range e.tapped {
		transactions, breaches := w.Overheard(s.Strategy)
		all.Transactions += transactions
		for _, b := range breaches {
			all.Breaches = append(all.Breaches, fmt.Sprintf("replica %d: %s", n+1, b))
		}
	}
	return all
}

// walletFault breaks replicas, commits or members of the replica set.
func (e *environment) walletFault(s loadtest.Scenario, replicas *loadtest.Replicas) (fault.Fault, error) {
	if s.Fault == loadtest.Crash {
		var steps []string
		for _, step := range wallet.Steps() {
			steps = append(steps, string(step))
		}
		return fault.CrashSteps{Replicas: replicas, Flow: "wallet", Steps: steps, Wait: stepWait}, nil
	}
	set, err := e.mongoSet(mongoKind(s))
	if err != nil {
		return nil, err
	}
	switch s.Fault {
	case loadtest.Pause:
		aim := func(ctx context.Context) bool { return mongofault.Abandoned(ctx, set, aimWait) }
		return fault.Pauses{Replicas: replicas, TTL: transactionLifetime(s), Aim: aim}, nil
	case loadtest.StepDown:
		return mongofault.StepDown{Set: set, Times: 2}, nil
	case loadtest.PrimaryPause:
		return mongofault.PrimaryPause{Set: set, Times: 1}, nil
	case loadtest.PrimaryKill:
		return mongofault.PrimaryKill{Set: set, Times: 1}, nil
	case loadtest.CommitUnknown:
		return mongofault.CommitUnknown{Wires: e.tapped, Every: 100 * time.Millisecond, Phase: 700 * time.Millisecond}, nil
	}
	return nil, fmt.Errorf("no such fault: %q", s.Fault)
}

// fillWallets makes the plan's clients and their wallets.
func fillWallets(ctx context.Context, pool *pgxpool.Pool, mongoURL string, plan loadtest.Plan) (list []loadtest.Credentials, err error) {
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
	for n := range plan.Clients {
		id, key, err := api.AddClient(ctx, pool, fmt.Sprintf("client-%02d", n+1), false)
		if err != nil {
			return nil, err
		}
		list = append(list, loadtest.Credentials{ID: id, Key: key})
	}
	for _, p := range plan.Wallets {
		w := wallet.Wallet{ID: p.ID, Owner: list[p.Client].ID, Currency: p.Currency, Opening: p.Opening}
		if _, err := service.OpenWallet(ctx, w); err != nil {
			return nil, err
		}
	}
	return list, nil
}
