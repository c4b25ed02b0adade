// SPDX-License-Identifier: MIT

package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

const endOfSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`

func (p transferReplica) buyBy(strategy string) (int, string) {
	return p.send("POST", "/v1/orders?strategy="+strategy, "by "+strategy, `{"lines":[{"sku":"coffee","quantity":1}]}`)
}

// asked is one request of each route that uses PostgreSQL.
func (p transferReplica) asked(order, hold string) map[string]func() (int, string) {
	return map[string]func() (int, string){
		"product":  func() (int, string) { return p.send("GET", "/v1/products/coffee", "", "") },
		"products": func() (int, string) { return p.send("GET", "/v1/products", "", "") },
		"order":    func() (int, string) { return p.send("GET", "/v1/orders/"+order, "", "") },
		"account":  func() (int, string) { return p.send("GET", "/v1/accounts/"+p.from, "", "") },
		"buy":      func() (int, string) { return p.buy("refused") },
		"cancel":   func() (int, string) { return p.send("POST", "/v1/orders/"+order+"/cancel", "refused cancel", "") },
		"pay":      func() (int, string) { return p.pay("refused pay") },
		"hold":     func() (int, string) { return p.pay("refused hold", `,"pending":true,"expires_in":"1h"`) },
		"void":     func() (int, string) { return p.send("POST", "/v1/transfers/"+hold+"/void", "refused void", "") },
	}
}

// PostgreSQL refuses writes, logins or a privilege. Nothing was done, so that no request may be told that its outcome is
// unknown, and no balancer that this replica is ready.
func TestPostgres_ThatRefusesIsBusyAndNotReadyUntilItStops(t *testing.T) {
	databaseURL, keys := newDatabase(t)
	role, roleURL := newRole(t, databaseURL)
	if out, err := shop(t, "migrate", "--postgres-url", databaseURL, "--grant-to", role); err != nil {
		t.Fatal(out, err)
	}
	ids := accounts(t, databaseURL)
	p := transferReplica{startReplica(t, roleURL, keys["alice"], "--lab", "--request-timeout=1m"), ids["alice"], ids["bob"]}
	id := func(status int, body string) string { return created(t, status, body) }
	order, hold := id(p.buy("first")), id(p.pay("first hold", `,"pending":true,"expires_in":"1h"`))
	quoted := pgx.Identifier{role}.Sanitize()
	reads := map[string]bool{"product": true, "products": true, "order": true, "account": true}
	for name, c := range map[string]struct {
		begin, end string
		sessions   bool // new sessions only
		still      map[string]bool
	}{
		"read-only": {"ALTER ROLE " + quoted + " SET default_transaction_read_only = on", "ALTER ROLE " + quoted + " RESET default_transaction_read_only", true, reads},
		"login":     {"ALTER ROLE " + quoted + " NOLOGIN", "ALTER ROLE " + quoted + " LOGIN", true, nil},
		"password":  {"ALTER ROLE " + quoted + " PASSWORD 'other'", "ALTER ROLE " + quoted + " PASSWORD 'clerk'", true, nil},
		"privilege": {"REVOKE INSERT ON idempotency_keys FROM " + quoted, "GRANT INSERT ON idempotency_keys TO " + quoted, false, reads},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, databaseURL, c.begin)
			if c.sessions {
				execute(t, databaseURL, endOfSessions, role)
			}
			locktest.Eventually(t, "not ready", func() bool { status, _ := p.get(p.url + "/readyz"); return status == http.StatusServiceUnavailable })
			for what, ask := range p.asked(order, hold) {
				status, body := ask()
				if c.still[what] {
					if status != http.StatusOK {
						t.Errorf("%s: %d %s, want 200", what, status, body)
					}
				} else if status != http.StatusServiceUnavailable || !strings.Contains(body, `"/problems/busy"`) {
					t.Errorf("%s: %d %s, want 503 busy", what, status, body)
				}
			}
			execute(t, databaseURL, c.end)
			locktest.Eventually(t, "ready", func() bool { status, _ := p.get(p.url + "/readyz"); return status == http.StatusOK })
			locktest.Eventually(t, "it sells", func() bool { status, _ := p.buy("after " + name); return status == http.StatusCreated })
			if n := query(t, databaseURL, `SELECT count(*) FROM idempotency_keys WHERE key LIKE 'refused%'`); n != 0 {
				t.Errorf("%d refused requests took effect", n)
			}
		})
	}
	// A purchase that divides a stock needs it, others do not.
	execute(t, databaseURL, "REVOKE DELETE ON stock_slots FROM "+quoted)
	locktest.Eventually(t, "not ready without DELETE", func() bool { status, _ := p.get(p.url + "/readyz"); return status == http.StatusServiceUnavailable })
}

// Each strategy of each lesson meets the refusal at another statement.
func TestPostgres_ThatIsReadOnlyIsBusyForEachStrategy(t *testing.T) {
	databaseURL, keys := newDatabase(t)
	role, roleURL := newRole(t, databaseURL)
	if out, err := shop(t, "migrate", "--postgres-url", databaseURL, "--grant-to", role); err != nil {
		t.Fatal(out, err)
	}
	ids := accounts(t, databaseURL)
	p := transferReplica{startReplica(t, roleURL, keys["alice"], "--lab"), ids["alice"], ids["bob"]}
	execute(t, databaseURL, "ALTER ROLE "+pgx.Identifier{role}.Sanitize()+" SET default_transaction_read_only = on")
	execute(t, databaseURL, endOfSessions, role)
	locktest.Eventually(t, "not ready", func() bool { status, _ := p.get(p.url + "/readyz"); return status == http.StatusServiceUnavailable })
	for _, strategy := range strategyNames() {
		if status, body := p.buyBy(strategy); status != 503 || !strings.Contains(body, "/busy") {
			t.Errorf("purchase, %s: %d %s", strategy, status, body)
		}
	}
	for _, strategy := range transferStrategyNames() {
		if status, body := p.payBy(strategy, "t"); status != 503 || !strings.Contains(body, "/busy") {
			t.Errorf("transfer, %s: %d %s", strategy, status, body)
		}
	}
}

// PgBouncer before 1.21 does not track prepared statements.
func TestPostgres_BehindAPoolerIsRefusedWithTheRemedyAndServesWithIt(t *testing.T) {
	databaseURL, keys := newDatabase(t)
	ids := accounts(t, databaseURL)
	pooled := servertest.StartPooler(t, databaseURL, "ignore_startup_parameters = lock_timeout,statement_timeout,idle_in_transaction_session_timeout,extra_float_digits")
	for _, c := range []struct{ command, settings, want string }{
		{"migrate", "", "address of PostgreSQL itself"},
		{"serve", "", "default_query_exec_mode=exec"},
		{"serve", "&default_query_exec_mode=exec", "SET lock_timeout = '2000'"},
		{"batch", "", "default_query_exec_mode=exec"},
	} {
		out, err := shop(t, c.command, "--postgres-url", pooled+c.settings)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want exit 2 and %q\n%s", c.command, c.settings, err, c.want, out)
		}
	}
	// Limits of the role would reach other tests. In the URL they say that PostgreSQL sets none.
	limited := pooled + "&default_query_exec_mode=exec&lock_timeout=0&statement_timeout=0&idle_in_transaction_session_timeout=0"
	p := transferReplica{startReplica(t, limited, keys["alice"], "--lab"), ids["alice"], ids["bob"]}
	for _, strategy := range strategyNames() {
		if status, body := p.buyBy(strategy); status != 201 {
			t.Errorf("purchase, %s: %d %s", strategy, status, body)
		}
	}
	execute(t, databaseURL, `
		UPDATE products p SET stock = s.stock FROM products_with_slots s WHERE s.sku = p.sku;
		DELETE FROM stock_slots`) // slots was the last one
	for _, strategy := range transferStrategyNames() {
		if status, body := p.payBy(strategy, "t"); status != 201 {
			t.Errorf("transfer, %s: %d %s", strategy, status, body)
		}
	}
	id := func(status int, body string) string { return created(t, status, body) }
	order, hold := id(p.buy("cancelled")), id(p.pay("voided", `,"pending":true,"expires_in":"1h"`))
	for what, ask := range p.asked(order, hold) {
		if status, body := ask(); status != 200 && status != 201 {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	p.wantHealth("ok")
	if out, err := shop(t, "batch", "--postgres-url", limited); err != nil {
		t.Errorf("batch: %v\n%s", err, out)
	}
	if out, err := shop(t, "audit", "--postgres-url", limited); err != nil {
		t.Errorf("audit: %v\n%s", err, out)
	}
}
