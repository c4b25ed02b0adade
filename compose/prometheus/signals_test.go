// SPDX-License-Identifier: MIT

package prometheus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.yaml.in/yaml/v3"

	"shop/compose/local/stack/stacktest"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/servertest"
	"shop/wallet/mongotest"
)

// dashboard is a file of Grafana, without what the tests do not read.
type dashboard struct {
	Panels []struct {
		ID         int
		Title      string
		Datasource struct{ UID string }
		Targets    []struct{ Expr string }
	}
}

// dashboards reads all dashboards.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v %v, want two dashboards", files, err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil || len(d.Panels) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

func TestDashboards_UseTheProvisionedSource(t *testing.T) {
	var sources struct{ Datasources []struct{ UID, URL string } }
	if err := yaml.Unmarshal([]byte(read(t, "../grafana/provisioning/datasources/prometheus.yaml")), &sources); err != nil || len(sources.Datasources) != 1 {
		t.Fatalf("%v %v", sources, err)
	}
	for name, d := range dashboards(t) {
		ids := map[int]bool{}
		for _, panel := range d.Panels {
			if panel.Datasource.UID != sources.Datasources[0].UID || len(panel.Targets) == 0 || ids[panel.ID] {
				t.Errorf("%s: %s has another source, no query, or the id of another panel", name, panel.Title)
			}
			ids[panel.ID] = true
		}
	}
}

// shop is a replica of the program, with its own Redis, and a batch.
type shop struct {
	t       *testing.T
	program string
	env     []string
	prefix  string // of its locks
	api     string
	metrics map[string]string // job → address
	key     string            // of the API
	from    string
	to      string
	wallet  string
	mongo   *mongo.Database
	bought  sync.WaitGroup
}

func startShop(t *testing.T, redisURL string) *shop {
	t.Helper()
	s := &shop{t: t, program: filepath.Join(t.TempDir(), "shop"), prefix: "signals-" + uuid.NewString()}
	var mongoURL string
	s.mongo, mongoURL = mongotest.Database(t, servertest.Env(t, "SHOP_MONGO_URL"))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.program, "../../cmd/shop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.env = []string{
		"SHOP_POSTGRES_URL=" + pgtest.Schema(t), "SHOP_REDIS_URL=" + redisURL, "SHOP_MONGO_URL=" + mongoURL,
		"SHOP_ETCD_ENDPOINTS=" + servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), "SHOP_LOCK_PREFIX=" + s.prefix, "SHOP_METRICS_LISTEN=127.0.0.1:0",
	}
	s.run("migrate")
	seeded := s.run("seed")
	s.key, s.from, s.to = exported(t, seeded, "KEY_ALICE"), exported(t, seeded, "ACCOUNT_ALICE"), exported(t, seeded, "ACCOUNT_BOB")
	s.wallet = exported(t, seeded, "WALLET_ALICE")
	serve := start(t, s.env, s.program, "serve", "--listen=127.0.0.1:0")
	batch := start(t, s.env, s.program, "batch", "--every=1s")
	locktest.Eventually(t, "a replica and a batch", func() bool {
		return serve.logged("serving", "address") != "" && batch.logged("sweeping", "metrics") != ""
	})
	s.api = "http://" + serve.logged("serving", "address")
	s.metrics = map[string]string{"shop": serve.logged("serving", "metrics"), "batch": batch.logged("sweeping", "metrics")}
	return s
}

// run runs a command to its end, and returns what it printed.
func (s *shop) run(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.program, args...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("shop %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// exported finds a variable in what seed printed.
func exported(t *testing.T, seeded, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^export SHOP_` + name + `=(\S+)$`).FindStringSubmatch(seeded)
	if found == nil {
		t.Fatalf("seed printed no %s", name)
	}
	return found[1]
}

// send sends a request as alice. An error of the network is status 0.
func (s *shop) send(path, key, body string) int {
	req, err := http.NewRequest("POST", s.api+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header = http.Header{"Authorization": {"Bearer " + s.key}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	res, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func (s *shop) buy(sku, key string) int {
	return s.send("/v1/orders", key, fmt.Sprintf(`{"lines":[{"sku":%q,"quantity":1}]}`, sku))
}

// load sends, ten times a second until the test ends, a purchase, its repetition, a transfer, a debit of the wallet, and a
// refused purchase.
func (s *shop) load() {
	ctx, stop := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() { stop(); s.bought.Wait() })
	s.bought.Go(func() {
		for ctx.Err() == nil {
			key := uuid.NewString()
			s.buy("coffee", key)
			s.buy("coffee", key)
			s.buy("unicorn", key+"!")
			s.send("/v1/transfers", key+"?", fmt.Sprintf(`{"from":%q,"to":%q,"amount":1,"currency":"EUR"}`, s.from, s.to))
			s.send("/v1/wallets/"+s.wallet+"/debits", key+"$", `{"amount":1}`)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// buyAtOnce sends n purchases side by side, and returns when all are answered.
func (s *shop) buyAtOnce(n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { s.buy("coffee", uuid.NewString()) })
	}
	all.Wait()
}

// holdRow locks the row of coffee for a second, so that a purchase of it holds its lock for that long.
func (s *shop) holdRow() {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), strings.TrimPrefix(s.env[0], "SHOP_POSTGRES_URL="))
	if err == nil {
		_, err = conn.Exec(s.t.Context(), `SELECT pg_sleep(1) FROM (SELECT FROM products WHERE sku = 'coffee' FOR UPDATE) AS locked`)
		_ = conn.Close(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// holdWallets writes to all wallets in a transaction, and aborts it after half a second: a debit gets WriteConflict.
func (s *shop) holdWallets() {
	s.t.Helper()
	err := s.mongo.Client().UseSession(s.t.Context(), func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		if err := session.StartTransaction(); err != nil {
			return err
		}
		_, err := s.mongo.Collection("wallets").UpdateMany(ctx, bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: int64(1)}}}})
		time.Sleep(500 * time.Millisecond)
		return errors.Join(session.AbortTransaction(ctx), err)
	})
	var conflict mongo.ServerError
	if err != nil && (!errors.As(err, &conflict) || !conflict.HasErrorLabel("TransientTransactionError")) { // with a debit that was first
		s.t.Fatal(err)
	}
}

// stick acquires the lock of coffee, and keeps it.
func (s *shop) stick(redisURL string) {
	s.t.Helper()
	const ttl = 2 * time.Minute
	client, err := redislock.Connect(redisURL, ttl)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: s.prefix})
	if err != nil {
		s.t.Fatal(err)
	}
	locktest.Eventually(s.t, "the lock of coffee", func() bool {
		_, err := store.TryAcquire(s.t.Context(), "product/coffee")
		return err == nil
	})
}

// Goal: a dashboard without data, and an alert that does not fire, are found before they are needed.
// Method: the real Prometheus scrapes a replica under load, and each fault is made. The rules are those of
// alerts.yaml with shorter times (see fast). That they do not fire without a fault, alerts_test.yaml shows.
func TestSignals_EveryPanelHasDataAndEveryAlertFires(t *testing.T) {
	redis := stacktest.Private(t, "redis")[0]
	s := startShop(t, redis.Env["SHOP_REDIS_URL"])
	p := startPrometheus(t, s.metrics)
	s.load()
	locktest.Eventually(t, "both jobs are scraped", func() bool { return p.hasData(`count(up == 1) == 2`) })
	if p.hasData(`rate(no_such_metric[1m])`) {
		t.Error("a metric that does not exist has data")
	}
	locktest.Eventually(t, "no alert fires", func() bool {
		for _, name := range alerts(t) {
			for _, store := range []string{"redis", "etcd", "postgres"} {
				if p.fires(name, store) {
					return false
				}
			}
		}
		return p.hasData(`rate(locking_hold_seconds_count{store="redis"}[10s]) > 0`)
	})

	p.awaitAlert("ShopLockHoldTime", "redis", s.holdRow)
	awaitPanels(t, p)
	for _, expr := range []string{ // panels of wallets have data from the start, which is zero: load must change it
		`sum(rate(http_requests_total{route=~".*/v1/wallets/.*"}[1m])) > 0`, `pool_connections{server="mongo"} > 0`, `sum(rate(wallet_events_total{kind="conflict"}[1m])) > 0`,
	} {
		locktest.Eventually(t, expr, func() bool { s.holdWallets(); return p.hasData(expr) })
	}
	s.stick(redis.Env["SHOP_REDIS_URL"])
	p.awaitAlert("ShopLockTimeouts", "redis", func() { s.buyAtOnce(16) })
	p.awaitAlert("ShopLockFailureRate", "redis", nil)
	if err := redis.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitAlert("ShopLockStoreUnavailable", "redis", nil)
}

// awaitPanels waits until each query of each panel has returned data.
func awaitPanels(t *testing.T, p *server) {
	t.Helper()
	for name, d := range dashboards(t) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
				locktest.Eventually(t, fmt.Sprintf("data for %s: %s: %s", name, panel.Title, expr), func() bool { return p.hasData(expr) })
			}
		}
	}
}
