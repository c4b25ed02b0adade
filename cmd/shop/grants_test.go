// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// newRole makes a role that may connect, and returns its name and databaseURL with it. It is dropped after the test.
func newRole(t *testing.T, databaseURL string) (name, roleURL string) {
	t.Helper()
	name = "Clerk of " + uuid.NewString()
	role := pgx.Identifier{name}.Sanitize()
	execute(t, databaseURL, "CREATE ROLE "+role+" LOGIN PASSWORD 'clerk'")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "clerk")
	return name, u.String()
}

// created fails the test if an answer is not 201, and returns the id in it.
func created(t *testing.T, status int, body string) string {
	t.Helper()
	var reply struct{ ID string }
	if err := json.Unmarshal([]byte(body), &reply); status != 201 || err != nil || reply.ID == "" {
		t.Fatalf("%d %s", status, body)
	}
	return reply.ID
}

// The role of --grant-to serves, runs the batch and audits. It cannot change what is append-only, alter a table, or make
// itself an administrator.
func TestGrants_AreEnoughToServeAndTooFewToRewriteTheLedger(t *testing.T) {
	databaseURL, keys := newDatabase(t)
	role, roleURL := newRole(t, databaseURL)
	if out, err := shop(t, "serve", "--listen=127.0.0.1:0", "--postgres-url", roleURL); exitCode(err) != 2 || !strings.Contains(err.Error(), "--grant-to") {
		t.Errorf("without a grant: %v, want advice\n%s", err, out)
	}
	execute(t, databaseURL, "GRANT ALL ON ledger_entries, clients TO "+pgx.Identifier{role}.Sanitize()) // too much: it is taken away
	for range 2 {
		if out, err := shop(t, "migrate", "--postgres-url", databaseURL, "--grant-to", role); err != nil {
			t.Fatal(out, err)
		}
	}

	const pending = `,"pending":true,"expires_in":"1h"`
	ids := accounts(t, databaseURL)
	p := transferReplica{startReplica(t, roleURL, keys["alice"]), ids["alice"], ids["bob"]}
	p.wantHealth("ok")
	id := func(status int, body string) string { return created(t, status, body) }
	order, hold, expiring := id(p.buy("order")), id(p.pay("hold", pending)), id(p.pay("expiring", pending))
	id(p.pay("payment"))
	limited := id(p.send("POST", "/v1/orders", "limited", `{"lines":[{"sku":"vinyl","quantity":2}]}`))
	id(p.send("POST", "/v1/orders/"+limited+"/cancel", "cancel limited", ""))
	for key, path := range map[string]string{"cancel": "/v1/orders/" + order + "/cancel", "post": "/v1/transfers/" + hold + "/post"} {
		id(p.send("POST", path, key, ""))
	}
	if out, err := shop(t, "audit", "--postgres-url", roleURL); err != nil {
		t.Errorf("audit: %v\n%s", err, out)
	}
	execute(t, databaseURL, `UPDATE transfers SET created_at = created_at - interval '1 day', expires_at = created_at - interval '1 hour' WHERE id = $1`, expiring)
	execute(t, databaseURL, `UPDATE idempotency_keys SET created_at = created_at - interval '2 days' WHERE key = 'payment'`)
	execute(t, databaseURL, `UPDATE orders SET created_at = created_at - interval '2 days'`)
	out, err := shop(t, "batch", "--postgres-url", roleURL, "--lock-prefix", t.Name())
	if err != nil || !strings.Contains(out, `"holds_expired":1`) || !strings.Contains(out, `"keys_purged":1`) {
		t.Errorf("batch: %v\n%s", err, out)
	}

	conn, err := pgx.Connect(t.Context(), roleURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, forbidden := range []string{
		`UPDATE ledger_entries SET delta = 1`, `DELETE FROM ledger_entries`, `TRUNCATE ledger_entries`, `ALTER TABLE ledger_entries DISABLE TRIGGER ALL`,
		`DROP TABLE ledger_entries`, `DROP FUNCTION ledger_is_append_only CASCADE`, `SET session_replication_role = replica`, `UPDATE stock_movements SET quantity = 1`,
		`DELETE FROM orders`, `DELETE FROM purchased`, `DELETE FROM transfers`, `DELETE FROM accounts`, `INSERT INTO accounts DEFAULT VALUES`, `DELETE FROM daily_sales`,
		`UPDATE clients SET admin = true`, `INSERT INTO clients DEFAULT VALUES`, `DELETE FROM fence_epochs`, `CREATE TABLE mine (id int)`,
	} {
		_, err := conn.Exec(t.Context(), forbidden)
		if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "42501" { // insufficient_privilege
			t.Errorf("%s: %v, want permission denied", forbidden, err)
		}
	}
}

func TestGrants_ARoleThatCannotServeIsRefused(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	owner := u.User.Username()
	member, _ := newRole(t, databaseURL)
	execute(t, databaseURL, "GRANT "+pgx.Identifier{owner}.Sanitize()+" TO "+pgx.Identifier{member}.Sanitize())
	for role, advice := range map[string]string{"no such role": `CREATE ROLE "no such role" LOGIN`, owner: "no superuser", member: "no member of the owner"} {
		if out, err := shop(t, "migrate", "--postgres-url", databaseURL, "--grant-to", role); exitCode(err) != 2 || !strings.Contains(err.Error(), advice) {
			t.Errorf("%s: %v, want %s\n%s", role, err, advice, out)
		}
	}
}
