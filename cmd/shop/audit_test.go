// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency/pgtx/pgtest"
)

func TestAudit_PrintsEachInvariantAndFailsWithTheIDsOfWhatBreaksOne(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", databaseURL)
	if err != nil || !strings.Contains(out, "stock-balance (S1)") || !strings.Contains(out, "I-ONCE") {
		t.Fatalf("a new shop: %v\n%s", err, out)
	}
	execute(t, databaseURL, `UPDATE products SET stock = stock - 1 WHERE sku = 'tea'`)
	out, err = shop(t, "audit", "--postgres-url", databaseURL)
	if exitCode(err) != 1 || !strings.Contains(out, "tea") {
		t.Errorf("a unit is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_CountsMoneyThatIsMissing(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", databaseURL)
	if err != nil || !strings.Contains(out, "transfer   money-conserved (T1) ") || !strings.Contains(out, "transfer   account-balance (T3) ") {
		t.Fatalf("a new shop: %v\n%s", err, out)
	}
	alice := accounts(t, databaseURL)["alice"]
	execute(t, databaseURL, `UPDATE accounts SET balance = balance - 1 WHERE id = $1`, alice)
	out, err = shop(t, "audit", "--postgres-url", databaseURL)
	if exitCode(err) != 1 || !strings.Contains(out, alice) {
		t.Errorf("a cent is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_CountsAWalletThatDoesNotAddUp(t *testing.T) {
	db := sharedMongo(t)
	url, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", url)
	if err != nil || !strings.Contains(out, "wallet     money-conserved (M1) ") || !strings.Contains(out, "wallet     once-per-operation (M3) ") {
		t.Fatalf("new wallets: %v\n%s", err, out)
	}
	id := wallets(t, url)["alice"]
	takeACent(t, db, id)
	out, err = shop(t, "audit", "--postgres-url", url)
	if exitCode(err) != 1 || !strings.Contains(out, id) {
		t.Errorf("a cent is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

// takeACent simulates a lost update: a balance that its entries do not explain.
func takeACent(t *testing.T, db *mongo.Database, wallet string) {
	t.Helper()
	_, err := db.Collection("wallets").UpdateByID(t.Context(), uuid.MustParse(wallet), bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: int64(-1)}}}})
	if err != nil {
		t.Fatal(err)
	}
}

// Without a MongoDB the audit reports that wallets were not checked. If MongoDB is down, it fails.
func TestAudit_ReportsThatWalletsWereNotChecked(t *testing.T) {
	url, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", url, "--mongo-url=")
	if err != nil || !strings.Contains(out, "wallet     not checked") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := shop(t, "audit", "--postgres-url", url, "--mongo-url=mongodb://127.0.0.1:1/shop"); exitCode(err) != 2 || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("MongoDB is down: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_FailsOnADatabaseWithoutTables(t *testing.T) {
	if out, err := shop(t, "audit", "--postgres-url", pgtest.Schema(t)); exitCode(err) != 2 {
		t.Errorf("exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

// slowProducts is a table of products that takes 300 ms to read, as one of millions does.
var slowProducts = []string{
	`ALTER VIEW products_with_slots RENAME TO all_products`,
	`CREATE VIEW products_with_slots AS SELECT all_products.* FROM all_products, pg_sleep(0.3)`,
}

// Each check reads whole tables. The limit of a statement is that of a request, and ends before a large table is read.
func TestAudit_OutlastsTheLimitOfAStatement(t *testing.T) {
	url, _ := newDatabase(t)
	for _, statement := range slowProducts {
		execute(t, url, statement)
	}
	url += "&statement_timeout=200"
	out, err := shop(t, "audit", "--postgres-url", url, "--mongo-url=")
	if err != nil || !strings.Contains(out, "stock-balance (S1)") || !strings.Contains(out, "audit: inventory S1 lines ... 0.") {
		t.Errorf("%v: want the numbers, and a line for each check\n%s", err, out)
	}
	execute(t, url, `CREATE OR REPLACE VIEW products_with_slots AS SELECT all_products.* FROM all_products, pg_sleep(1.5)`)
	out, err = shop(t, "audit", "--postgres-url", url, "--mongo-url=", "--limit=1s")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "S1 lines") || !strings.Contains(err.Error(), "--limit") {
		t.Errorf("exit status %d, %v: want the check that took too long\n%s", exitCode(err), err, out)
	}
	if _, err := shop(t, "audit", "--postgres-url", url, "--limit=0s"); exitCode(err) != 2 {
		t.Errorf("%v, want wrong usage", err)
	}
}

// All checks of PostgreSQL read one moment, and write nothing.
func TestAudit_ReadsOneSnapshot(t *testing.T) {
	url, _ := newDatabase(t)
	for _, statement := range []string{
		`ALTER TABLE products RENAME TO all_products`,
		`CREATE FUNCTION snapshot() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			ASSERT current_setting('transaction_isolation') = 'repeatable read' AND current_setting('transaction_read_only')::boolean;
			RETURN true;
		END $$`,
		`CREATE VIEW products AS SELECT * FROM all_products WHERE snapshot()`,
	} {
		execute(t, url, statement)
	}
	if out, err := shop(t, "audit", "--postgres-url", url, "--mongo-url="); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
