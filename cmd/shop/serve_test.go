// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

// replica is a running shop server.
type replica struct {
	t       *testing.T
	url     string
	metrics string
	key     string
	log     *lines
	out     *lines
	stop    context.CancelFunc
	end     chan error
}

func startReplica(t *testing.T, databaseURL, key string, flags ...string) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{t: t, key: key, log: &lines{}, out: &lines{}, stop: stop, end: make(chan error, 1)}
	args := append([]string{"serve", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--postgres-url", databaseURL, "--lock-prefix", t.Name()}, flags...)
	go func() { r.end <- runWith(ctx, args, r.out, r.log) }()
	r.awaitServing()
	t.Cleanup(func() {
		stop()
		if err := <-r.end; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *replica) awaitServing() {
	r.t.Helper()
	locktest.Eventually(r.t, "serving", func() bool { return r.log.find("serving") != nil || len(r.end) > 0 })
	line := r.log.find("serving")
	if line == nil {
		r.t.Fatalf("it does not serve: %v\n%s", <-r.end, r.log)
	}
	r.url, r.metrics = fmt.Sprintf("http://%s", line["address"]), fmt.Sprintf("http://%s/metrics", line["metrics"])
}

// get uses a new connection; status 0 means no answer.
func (r *replica) get(url string) (int, string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func (r *replica) buy(key string) (int, string) {
	return r.send("POST", "/v1/orders", key, `{"lines":[{"sku":"coffee","quantity":1}]}`)
}

// send sends a request as the replica's client.
func (r *replica) send(method, path, key, body string) (int, string) {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header = http.Header{"Authorization": {"Bearer " + r.key}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(answer)
}

func TestServe_ThreeReplicasOnOneMachineShareOneShop(t *testing.T) {
	url, keys := newDatabase(t)
	servertest.Env(t, "SHOP_REDIS_URL")
	var replicas []*replica
	for range 3 {
		replicas = append(replicas, startReplica(t, url, keys["alice"]))
	}
	_, first := replicas[0].buy("k")
	for _, r := range replicas {
		if status, body := r.buy("k"); status != 201 || body != first {
			t.Errorf("%d %s, want %s", status, body, first)
		}
		if status, body := r.get(r.url + "/readyz"); status != 200 || !strings.Contains(body, `"ok"`) {
			t.Errorf("ready: %d %s", status, body)
		}
		if out, err := shop(t, "ping", r.url+"/readyz"); err != nil || !strings.Contains(out, `"ok"`) {
			t.Errorf("ping: %s %v", out, err)
		}
	}
	replicas[0].wantReady("ok", "ok") // all servers have answered
	_, text := replicas[0].get(replicas[0].metrics)
	for _, name := range []string{"http_requests_total", "http_request_seconds", "locking_events_total", "locking_hold_seconds", `inventory_events_total{kind="guard_tripped",strategy="redis+row"} 0`, `transfer_events_total{kind="guard_tripped",strategy="etcd-fenced"} 0`, `wallet_events_total{kind="conflict",strategy="lockid"} 0`, `locking_events_total{kind="acquired",store="etcd"}`, `breaker_open{server="redis"} 0`, `breaker_open{server="etcd"} 0`, `breaker_open{server="mongo"} 0`, "go_goroutines", "process_open_fds"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is not in /metrics", name)
		}
	}
	if status, _ := replicas[0].get(replicas[0].url + "/metrics"); status != 404 {
		t.Errorf("/metrics on the public listener: %d", status)
	}
}

func TestServe_TermLetsARequestInFlightEnd(t *testing.T) {
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--lab", "--strategy=row", "--failpoint=inventory/before-acquire=sleep:4s", "--request-timeout=1m", "--drain-delay=5s")
	answered := make(chan int, 1)
	go func() {
		status, _ := r.buy("k")
		answered <- status
	}()
	locktest.Eventually(t, "a request in flight", func() bool {
		_, text := r.get(r.metrics)
		return strings.Contains(text, "\nhttp_requests_in_flight 1\n")
	})
	r.stop()
	locktest.Eventually(t, "draining", func() bool {
		status, body := r.get(r.url + "/readyz")
		return status == 503 && strings.Contains(body, `"draining"`)
	})
	if status := <-answered; status != 201 {
		t.Errorf("the request in flight was answered %d\n%s", status, r.log)
	}
}

// A client that sends its body slowly has no request at work, and does not delay the shutdown.
func TestServe_TermWaitsForNoSlowBody(t *testing.T) {
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--strategy=row", "--request-timeout=1m", "--shutdown-timeout=1m")
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 50\r\n\r\n{", keys["alice"]); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "the body is being read", func() bool {
		_, text := r.get(r.metrics)
		return strings.Contains(text, "\nhttp_requests_in_flight 1\n")
	})
	r.stop()
	locktest.Eventually(t, "stopped", func() bool { return r.log.find("stopped: every request got its answer") != nil })
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503") || !strings.Contains(string(answer), "Nothing was done") {
		t.Errorf("%v %s", err, answer)
	}
	if drain := r.log.find("draining"); drain["delay_ms"] != 0.0 {
		t.Errorf("a duration without its unit: %v", drain)
	}
}

func TestServe_WithoutRedisItSellsAndSaysDegraded(t *testing.T) {
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--redis-url=redis://127.0.0.1:1/0")
	for range 2 { // even before the first purchase
		if status, body := r.get(r.url + "/readyz"); status != 200 || !strings.Contains(body, `"degraded"`) || !strings.Contains(body, `"locks":"unreachable"`) {
			t.Errorf("ready: %d %s", status, body)
		}
		locktest.Eventually(t, "it is logged", func() bool { // the log is written outside of the request
			return r.log.find("inventory: the lock store cannot be reached; purchases go on with the row lock alone") != nil
		})
		if status, body := r.buy("k"); status != 201 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if _, text := r.get(r.metrics); !strings.Contains(text, `inventory_events_total{kind="degraded",strategy="redis+row"} 1`) {
		t.Error("it is not counted")
	}
}

func TestAudit_RouteCountsWithTheSQLOfTheLoadTest(t *testing.T) {
	db := sharedMongo(t)
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["admin"], "--strategy=row")
	audit := func() (numbers map[string]map[string]int64) {
		req, _ := http.NewRequest("GET", r.url+"/v1/audit", nil)
		req.Header.Set("Authorization", "Bearer "+keys["admin"])
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&numbers); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s %v", res.Status, err)
		}
		return numbers
	}
	if got := audit()["inventory"]; len(got) == 0 || got["S1"] != 0 {
		t.Errorf("a new shop: %v", got)
	}
	if got := audit()["transfer"]; len(got) == 0 || got["T1"] != 0 || got["drift"] != 0 {
		t.Errorf("a new bank: %v", got)
	}
	if got := audit()["wallet"]; len(got) == 0 || got["M1"] != 0 || got["drift"] != 0 {
		t.Errorf("new wallets: %v", got)
	}
	takeACent(t, db, wallets(t, url)["alice"])
	execute(t, url, `UPDATE products SET stock = stock + 1 WHERE sku = 'tea'`)
	execute(t, url, `UPDATE accounts SET balance = balance + 7 WHERE id = $1`, accounts(t, url)["bob"])
	if got := audit()["inventory"]; got["S1"] == 0 {
		t.Errorf("stock from nowhere: %v", got)
	}
	if got := audit()["transfer"]; got["T1"] == 0 || got["drift"] != 7 {
		t.Errorf("money from nowhere: %v", got)
	}
	if got := audit()["wallet"]; got["M1"] == 0 || got["M2"] == 0 || got["drift"] != 1 {
		t.Errorf("a cent is missing: %v", got)
	}
}

// Without an answer from Redis each strategy that locks there counts a purchase as degraded, under its own name.
func TestServe_AHotProductIsBoughtWithCombined(t *testing.T) {
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--strategy", "row", "--hot-products", "coffee", "--redis-url", "redis://127.0.0.1:1")
	if status, body := r.buy("k"); status != 201 {
		t.Fatal(status, body)
	}
	if status, body := r.send("POST", "/v1/orders", "other", `{"lines":[{"sku":"tea","quantity":1}]}`); status != 201 {
		t.Fatal(status, body)
	}
	if _, text := r.get(r.metrics); !strings.Contains(text, `inventory_events_total{kind="degraded",strategy="combined"} 1`) {
		t.Error("coffee was not bought with combined")
	}
}

// bin/local exec --restart redis sets the variable for all commands.
func TestServe_WithoutTheLabTheVariableOfTheKillHasNoEffect(t *testing.T) {
	t.Setenv("SHOP_LAB_KILL", "redis")
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--strategy=row")
	if status, body := r.buy("k"); status != 201 {
		t.Error(status, body)
	}
}

func TestServe_TheReferenceNeedsNoKeyAndNoLab(t *testing.T) {
	url, _ := newDatabase(t)
	r := startReplica(t, url, "", "--strategy=row")
	if status, body := r.get(r.url + "/docs"); status != 200 || !strings.Contains(body, "<rapi-doc ") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.get(r.url + "/openapi.json"); status != 200 || !strings.Contains(body, `"openapi":"3.1.1"`) {
		t.Errorf("%d %.100s", status, body)
	}
	if status, body := r.get(r.url + "/docs/"); status != 404 || !strings.Contains(body, "/problems/not-found") {
		t.Errorf("%d %s", status, body)
	}
}
