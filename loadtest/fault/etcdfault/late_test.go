// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/internal/testbed"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// newBank creates a separate schema with well-funded accounts.
func newBank(t *testing.T) (database string, owner uuid.UUID, accounts []string) {
	t.Helper()
	database, owner = pgtest.Schema(t), uuid.New()
	if err := transfer.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, database)
	for range 3 {
		id := uuid.New()
		_, err := conn.Exec(t.Context(), `INSERT INTO accounts (id, owner_id, currency, opening, balance) VALUES ($1, $2, 'EUR', 1000000, 1000000)`, id, owner)
		if err != nil {
			t.Fatal(err)
		}
		accounts = append(accounts, id.String())
	}
	return database, owner, accounts
}

func dial(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// wrong counts the accounts whose balance is not the sum of their entries.
func wrong(t *testing.T, database string) (n int) {
	t.Helper()
	err := dial(t, database).QueryRow(t.Context(), `
		SELECT count(*)
		FROM accounts a
		WHERE a.balance <> a.opening + COALESCE((SELECT sum(delta) FROM ledger_entries WHERE account_id = a.id), 0)`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// serve starts three replicas, each behind a proxy.
func serve(t *testing.T, strategy, database, prefix string, owner uuid.UUID, accounts []string) (proxies []*pgfault.Proxy, replicas processes) {
	t.Helper()
	for range 3 {
		w, err := pgfault.NewProxy(database)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		proxies = append(proxies, w)
		replicas.start(t, append([]string{strategy, w.URL(), testbed.Env(t, "SHOP_ETCD_ENDPOINTS"), prefix, owner.String()}, accounts...)...)
	}
	return proxies, replicas
}

// Three processes move money through three proxies, and are really stopped.
// etcd-unfenced and etcd-fence-only differ in one predicate.
func TestLateWrite_TheFenceRefusesAndWithoutItMoneyIsLost(t *testing.T) {
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only", "etcd-unfenced", "etcd-fenced" + stepByStep, "etcd-unfenced" + stepByStep} {
		t.Run(strategy, func(t *testing.T) {
			database, owner, accounts := newBank(t)
			client, prefix := shared(t)
			proxies, replicas := serve(t, strategy, database, prefix, owner, accounts)
			safe := !strings.HasPrefix(strategy, "etcd-unfenced")
			all := []pgfault.Way{pgfault.Revoked, pgfault.Stopped}
			if strings.HasSuffix(strategy, stepByStep) { // a replica with an open transaction is never stopped
				all = all[:1]
			}
			ctx, done := context.WithTimeout(t.Context(), 3*time.Minute)
			defer done()
			ways, refused := map[pgfault.Way]bool{}, 0
			late := pgfault.LateWrite{
				Proxies: proxies, Replicas: replicas, TTL: lockTTL, URL: database,
				Evict: func(ctx context.Context, account string) (bool, error) {
					return Evict(ctx, client, prefix, "account/"+account)
				},
				Record: func(r pgfault.LateRecord) {
					ways[r.Way] = true
					if r.Refused {
						refused++
					}
					t.Logf("\n%s", r.Diagram())
					if len(ways) == len(all) && (safe && refused > 0 || !safe && wrong(t, database) > 0) {
						done()
					}
				},
			}
			events, err := late.Inject(ctx, time.Hour)
			replicas.stop()
			seen := fault.Seen(events)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v: %v, %v, %d accounts wrong after three minutes", err, seen, ways, wrong(t, database))
			}
			if safe && (wrong(t, database) != 0 || seen["late_committed"] != 0) || !safe && seen["late_committed"] == 0 {
				t.Errorf("%v, %d accounts wrong", seen, wrong(t, database))
			}
		})
	}
}

// The proxy finds the COMMITs of package transfer, alone or in a pipeline, and a replica
// resolves a COMMIT whose outcome it does not know.
func TestCommitCut_LosesNoRealTransfer(t *testing.T) {
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only" + stepByStep} {
		database, owner, accounts := newBank(t)
		_, prefix := shared(t)
		proxies, replicas := serve(t, strategy, database, prefix, owner, accounts)
		seen := map[string]int64{}
		for limit := time.Now().Add(3 * time.Minute); (seen["commits_cut_before"] < 2 || seen["commits_cut_after"] < 2) && time.Now().Before(limit); {
			events, err := pgfault.CommitCut{Proxies: proxies, Every: 20 * time.Millisecond}.Inject(t.Context(), time.Second)
			if err != nil {
				t.Error(err)
			}
			for name, n := range fault.Seen(events) {
				seen[name] += n
			}
		}
		replicas.stop()
		t.Logf("%s: %v", strategy, seen)
		if seen["commits_cut_before"] < 2 || seen["commits_cut_after"] < 2 || wrong(t, database) != 0 {
			t.Errorf("%s: %v, %d accounts wrong", strategy, seen, wrong(t, database))
		}
	}
}
