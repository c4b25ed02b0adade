// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
	"shop/wallet/bonus/bonustest"
)

// wantWithoutMongo checks that requests for wallets are busy without a wait.
func (p walletReplica) wantWithoutMongo(name string) {
	p.t.Helper()
	p.credit("first-to-notice-" + name) // waits for a reply of MongoDB
	p.wantReady("ok", "unreachable")
	if _, text := p.get(p.metrics); !strings.Contains(text, `breaker_open{server="mongo"} 1`) {
		p.t.Errorf("%s: the metric of the breaker says nothing", name)
	}
	for what, request := range map[string]func() (int, string){
		"credit": func() (int, string) { return p.credit("while-down-" + name) },
		"debit":  func() (int, string) { return p.debit("while-down-" + name) },
		"read":   p.read,
	} {
		p.wantAtOnce(what, func() { // a request sent to MongoDB would wait 2 s
			if status, body := request(); status != 503 || !strings.Contains(body, "/problems/busy") {
				p.t.Errorf("%s: %d %s, want 503 busy", what, status, body)
			}
		})
	}
}

// wantTheRest checks that everything but wallets works. Orders and transfers share one table of keys.
func (p transferReplica) wantTheRest(name string) {
	p.t.Helper()
	if status, body := p.buy("while-down-" + name); status != 201 {
		p.t.Errorf("a purchase: %d %s", status, body)
	}
	if status, body := p.pay("transfer-while-down-" + name); status != 201 {
		p.t.Errorf("a transfer: %d %s", status, body)
	}
}

// forgetSoon sets a short transaction lifetime until the server restarts: a request that
// reaches the resumed server begins a transaction that no client ends, which locks the
// wallet.
func forgetSoon(t *testing.T, db *mongo.Database) {
	t.Helper()
	err := db.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 1},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

func TestServe_WithoutMongoDBItSellsAndMovesMoneyAndWalletsOpenAgainByThemselves(t *testing.T) {
	server := stacktest.Private(t, "mongo")[0]
	db := ownMongo(t, server.Env["SHOP_MONGO_URL"])
	url, keys := newDatabase(t)
	p, ids := startWalletReplica(t, url, keys["alice"], wallets(t, url)["alice"]), accounts(t, url)
	p.wantReady("ok", "ok")
	status, stored := p.credit("before")
	if status != 201 {
		t.Fatalf("%d %s", status, stored)
	}
	for name, f := range map[string]struct{ end, back func(context.Context) error }{
		"gone":   {server.Kill, server.Start},
		"silent": {server.Pause, server.Resume},
	} {
		forgetSoon(t, db)
		do(t, f.end)
		p.wantWithoutMongo(name)
		transferReplica{p.replica, ids["alice"], ids["bob"]}.wantTheRest(name)
		do(t, f.back)
		locktest.Eventually(t, name+": wallets are open", func() bool {
			status, _ := p.credit("while-down-" + name)
			return status == 201
		})
		if status, body := p.credit("before"); status != 201 || body != stored {
			t.Errorf("%s: a replay: %d %s", name, status, body)
		}
		p.wantReady("ok", "ok")
	}
	if p.log.find("MongoDB does not reply: requests for wallets are refused as busy until it does") == nil || p.log.find("MongoDB replies: requests for wallets are accepted") == nil {
		t.Errorf("it does not say so:\n%s", p.log)
	}
}

func TestServe_StartedWithoutMongoDBItServesAndWalletsOpenWhenItComes(t *testing.T) {
	server := stacktest.Private(t, "mongo")[0]
	ownMongo(t, server.Env["SHOP_MONGO_URL"])
	url, keys := newDatabase(t)
	id, ids := wallets(t, url)["alice"], accounts(t, url)
	do(t, server.Kill)
	p := startWalletReplica(t, url, keys["alice"], id)
	p.wantWithoutMongo("from-the-start")
	transferReplica{p.replica, ids["alice"], ids["bob"]}.wantTheRest("from-the-start")
	do(t, server.Start)
	locktest.Eventually(t, "wallets are open", func() bool {
		status, _ := p.credit("after")
		return status == 201
	})
	p.wantReady("ok", "ok")
}

// Without its collections MongoDB has no schema validation, which is the last line of defence.
func TestServe_WalletsOpenWhenMongoDBHasBeenMigrated(t *testing.T) {
	url, keys := newDatabase(t)
	sharedMongo(t)
	p := startWalletReplica(t, url, keys["alice"], "00000000-0000-0000-0000-000000000000")
	p.wantWithoutMongo("not-migrated")
	if _, err := shop(t, "seed", "--postgres-url", url); exitCode(err) != 2 || !strings.Contains(err.Error(), "shop migrate") {
		t.Errorf("seed: %v", err)
	}
	if out, err := shop(t, "migrate", "--postgres-url", url); err != nil {
		t.Fatal(out, err)
	}
	p.wantReady("ok", "ok")
	p.id = wallets(t, url)["alice"]
	if status, body := p.credit("k"); status != 201 {
		t.Errorf("%d %s", status, body)
	}
}

// A shop need not have wallets.
func TestServe_WithoutAMongoURLThereAreNoWallets(t *testing.T) {
	t.Setenv("SHOP_MONGO_URL", "")
	url, keys := newDatabase(t)
	if got := wallets(t, url); len(got) != 0 {
		t.Errorf("seeded: %v", got)
	}
	ids := accounts(t, url)
	p := startWalletReplica(t, url, keys["alice"], "00000000-0000-0000-0000-000000000000", "--lab")
	p.wantWithoutMongo("never")
	transferReplica{p.replica, ids["alice"], ids["bob"]}.wantTheRest("never")
}

// One key, sent to three replicas at once, makes one operation and gets one answer.
func TestServe_OneKeyAtThreeReplicasAtOnceIsOneCredit(t *testing.T) {
	db := sharedMongo(t)
	url, keys := newDatabase(t)
	id, service := wallets(t, url)["alice"], bonustest.Serve(t)
	var replicas []walletReplica
	for range 3 {
		replicas = append(replicas, startWalletReplica(t, url, keys["alice"], id, "--bonus-url", service.URL()).open())
	}
	for i := range 10 {
		var (
			bodies [3]string
			all    sync.WaitGroup
		)
		for n, p := range replicas {
			all.Go(func() { bodies[n] = untilDone(func() (int, string) { return p.credit(fmt.Sprintf("k%d", i)) }) })
		}
		all.Wait()
		if bodies[0] != bodies[1] || bodies[1] != bodies[2] || !strings.Contains(bodies[0], `"credit"`) {
			t.Fatalf("%q", bodies)
		}
	}
	if n := documents(t, db, "wallet_operations"); n != 10 {
		t.Errorf("%d operations, want 10", n)
	}
	if calls := service.Calls(); len(calls) != 10 || !calls[9].First {
		t.Errorf("the bonus service was called %d times for 10 credits: %+v", len(calls), calls)
	}
}

func TestServe_TheLabLetsARequestChooseHowAWalletIsWritten(t *testing.T) {
	sharedMongo(t)
	url, keys := newDatabase(t)
	p := startWalletReplica(t, url, keys["alice"], wallets(t, url)["alice"], "--lab", "--wallet-strategy=txn").open()
	for _, strategy := range append(walletStrategyNames(), "") {
		how := "credits"
		if strategy != "" {
			how += "?strategy=" + strategy
		}
		if status, body := p.write(how, "k-"+strategy, `{"amount":100}`); status != 201 {
			t.Errorf("%q: %d %s", strategy, status, body)
		}
	}
	if status, body := p.write("credits?strategy=row", "x", `{"amount":100}`); status != 400 {
		t.Errorf("another flow's: %d %s", status, body)
	}
}

// A credit without a bonus is counted under the name of its strategy.
func TestServe_AHotWalletIsCreditedWithCombined(t *testing.T) {
	sharedMongo(t)
	url, keys := newDatabase(t)
	mine := wallets(t, url)
	id := mine["alice"]
	for hot, strategy := range map[string]string{id: "combined", mine["bob"]: "lockid"} {
		p := startWalletReplica(t, url, keys["alice"], id, "--hot-wallets", hot, "--bonus-url", "http://127.0.0.1:1").open()
		if status, body := p.credit("k"); status != 503 {
			t.Errorf("%d %s, want 503", status, body)
		}
		if _, text := p.get(p.metrics); !strings.Contains(text, `wallet_events_total{kind="unavailable",strategy="`+strategy+`"} 1`) {
			t.Errorf("with %s hot, the wallet was not credited with %s", hot, strategy)
		}
	}
}
