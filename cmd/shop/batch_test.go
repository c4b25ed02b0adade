// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
)

// expired makes an expired hold, and two keys that are old enough to be purged.
func expired(t *testing.T) (url string, p transferReplica) {
	t.Helper()
	url, keys := newDatabase(t)
	p = startTransferReplica(t, url, keys["alice"])
	p.wantHealth("ok")
	if status, body := p.pay("hold", `,"pending":true,"expires_in":"1h"`); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := p.buy("old"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	execute(t, url, `UPDATE transfers SET created_at = created_at - interval '1 day', expires_at = created_at - interval '1 hour'`)
	execute(t, url, `UPDATE idempotency_keys SET created_at = created_at - interval '2 days'`)
	return url, p
}

func wantSwept(t *testing.T, url string) {
	t.Helper()
	if n := query(t, url, `SELECT (SELECT count(*) FROM transfers WHERE state = 'expired') - (SELECT sum(held) FROM accounts)::bigint`); n != 1 {
		t.Errorf("the hold has not expired, or its money is not free: %d", n)
	}
	if n := query(t, url, `SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d old keys are left", n)
	}
}

func TestBatch_SweepsExpiredHoldsAndPurgesOldKeysOnce(t *testing.T) {
	url, _ := expired(t)
	out, err := shop(t, "batch", "--postgres-url", url, "--lock-prefix", t.Name())
	if err != nil || !strings.Contains(out, `"holds_expired":1`) {
		t.Fatalf("%v\n%s", err, out)
	}
	wantSwept(t, url)
	if out, err := shop(t, "batch", "--postgres-url", url, "--lock-prefix", t.Name()); err != nil || strings.Contains(out, "holds_expired") {
		t.Errorf("again: %v\n%s", err, out)
	}
}

func TestBatch_PurgesOldRefusalsOfWallets(t *testing.T) {
	db := sharedMongo(t)
	url, keys := newDatabase(t)
	p := startWalletReplica(t, url, keys["alice"], wallets(t, url)["alice"]).open()
	for _, key := range []string{"old", "new"} {
		if status, body := p.write("debits", key, `{"amount":1000000}`); status != 409 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := p.debit("old-but-done"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	longAgo := bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: time.Now().Add(-48 * time.Hour)}}}}
	if _, err := db.Collection("wallet_operations").UpdateMany(t.Context(), bson.D{{Key: "key", Value: bson.D{{Key: "$ne", Value: "new"}}}}, longAgo); err != nil {
		t.Fatal(err)
	}
	out, err := shop(t, "batch", "--postgres-url", url, "--lock-prefix", t.Name())
	if err != nil || !strings.Contains(out, `"wallet_refusals_purged":1`) {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := documents(t, db, "wallet_operations"); n != 2 {
		t.Errorf("%d operations are left, want 2", n)
	}
}

// Without MongoDB the batch does everything else, and fails.
func TestBatch_WithoutMongoDBItDoesTheRestAndFails(t *testing.T) {
	url, _ := expired(t)
	if _, err := shop(t, "batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--mongo-url=mongodb://127.0.0.1:1/shop"); exitCode(err) != 1 {
		t.Errorf("exit status %d, %v", exitCode(err), err)
	}
	wantSwept(t, url)
}

func TestBatch_TakesTheLocksOfItsStrategy(t *testing.T) {
	url, _ := expired(t)
	flags := []string{"batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--transfer-strategy=etcd-unfenced"}
	if _, err := shop(t, flags...); exitCode(err) != 2 || !strings.Contains(err.Error(), "--lab") {
		t.Errorf("an unsafe strategy outside the lab: %v", err)
	}
	if out, err := shop(t, append(flags, "--lab")...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	wantSwept(t, url)
}

// Without etcd a single run fails, but still deletes old keys; with --every the batch
// repeats until the holds are released.
func TestBatch_FailsWithoutEtcdAndWithEveryTriesAgain(t *testing.T) {
	url, _ := expired(t)
	etcd := stacktest.Private(t, "etcd")[0]
	do(t, etcd.Kill)
	execute(t, url, `UPDATE accounts SET fence = 0, fence_epoch = ''`) // the hold was made under another etcd
	flags := []string{"batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--etcd-endpoints", etcd.Addr, "--transfer-lock-ttl=3s"}
	if _, err := shop(t, flags...); exitCode(err) != 1 {
		t.Errorf("without etcd: exit status %d, %v", exitCode(err), err)
	}
	if n := query(t, url, `SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d old keys are left", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	log, end := &lines{}, make(chan error, 1)
	go func() { end <- runWith(ctx, append(flags, "--every=50ms"), io.Discard, log) }()
	locktest.Eventually(t, "the failure is logged", func() bool { return log.find("the round is incomplete; the next round tries again") != nil })
	do(t, etcd.Start)
	locktest.Eventually(t, "the hold has expired", func() bool { return query(t, url, `SELECT count(*) FROM transfers WHERE state = 'expired'`) == 1 })
	stop()
	if err := <-end; err != nil {
		t.Errorf("after a signal: %v", err)
	}
	wantSwept(t, url)
}
