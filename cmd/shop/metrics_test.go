// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shop/locking/locktest"
)

// exported are the series that must exist after the requests of the test below, with what they
// have counted by then. That the locks' series count is checked in package lockprom, that those of
// pools do in pools_test.go, and the other events in the tests of what causes them.
var exported = []struct{ signal, series string }{
	{"lock attempts", `locking_events_total{kind="attempt",store="redis"} 3`},
	{"lock attempts", `locking_events_total{kind="attempt",store="etcd"} 1`},
	{"lock busy", `locking_events_total{kind="busy",store="redis"} 0`},
	{"lock time-outs", `locking_events_total{kind="timed_out",store="redis"} 0`},
	{"lock lost", `locking_events_total{kind="lost",store="redis"} 0`},
	{"lock wait", `locking_wait_seconds_count{store="redis"} 3`},
	{"lock wait", `locking_wait_seconds_count{store="etcd"} 1`},
	{"lock hold", `locking_hold_seconds_count{store="redis"} 3`},
	{"lock hold", `locking_hold_seconds_count{store="etcd"} 1`},
	{"renew lag", `locking_renew_lag_seconds_count{store="redis"} 0`},
	{"renew lag", `locking_renew_lag_seconds_count{store="etcd"} 0`},
	{"fence refusals", `transfer_events_total{kind="fence_refused",strategy="etcd-fenced"} 0`},
	{"last guard", `inventory_events_total{kind="guard_tripped",strategy="redis+row"} 0`},
	{"outcomes", `http_requests_total{code="201",method="POST",route="/v1/orders"} 2`},
	{"outcomes", `http_requests_total{code="201",method="POST",route="/v1/transfers"} 1`},
	{"outcomes", `http_problems_total{type="out-of-stock"} 1`},
	{"outcomes", `http_problems_total{type="not-found"} 1`},
	{"outcomes", `http_problems_total{type="outcome-unknown"} 0`},
	{"outcomes", `http_request_seconds_count{route="/v1/transfers"} 1`},
	{"limits", `http_requests_refused_total{limit="client_rate"} 0`},
	{"replays", `http_replays_total 1`},
	{"pool depth", `pool_connections{server="postgres",state="limit"} 16`},
	{"pool depth", `pool_connections{server="redis",state="in_use"} 0`},
	{"pool depth", `pool_connections{server="mongo",state="limit"} 100`},
	{"pool depth", `pool_wait_seconds_total{server="postgres"}`},
	{"pool depth", `pool_wait_seconds_total{server="mongo"}`},
	{"queue depth", `http_requests_in_flight 0`},
	{"queue depth", `queue_length{flow="inventory"} 0`},
	{"queue depth", `queue_length{flow="transfer"} 0`},
	{"queue depth", `queue_length{flow="wallet"} 0`},
	{"lock store available", `breaker_open{server="redis"} 0`},
	{"lock store available", `breaker_open{server="etcd"} 0`},
}

// labels that a series may have. Each has few values, which do not come from requests.
var labels = []string{
	"code", "flow", "kind", "limit", "method", "route", "server", "state", "store", "strategy", "type",
	"cause", "version", // of client_golang's own metrics
}

func TestMetrics_EverySignalIsExported(t *testing.T) {
	sharedMongo(t)
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"])
	walletReplica{r, ""}.open()
	p := transferReplica{r, accounts(t, url)["alice"], accounts(t, url)["bob"]}
	r.wantReady("ok", "ok")
	for _, request := range []struct {
		key, body string
		status    int
	}{
		{"secret-key-1", `{"lines":[{"sku":"coffee","quantity":1}]}`, 201},
		{"secret-key-1", `{"lines":[{"sku":"coffee","quantity":1}]}`, 201}, // a replay
		{"secret-key-2", `{"lines":[{"sku":"last-one","quantity":2}]}`, 409},
		{"secret-key-3", `{"lines":[{"sku":"unicorn","quantity":1}]}`, 404},
	} {
		if status, body := r.send("POST", "/v1/orders", request.key, request.body); status != request.status {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := p.pay("secret-key-4"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	var text string
	for _, want := range exported {
		locktest.Eventually(t, want.signal+": "+want.series, func() bool { // a connection is returned after the reply
			_, text = r.get(r.metrics)
			return strings.Contains(text, "\n"+want.series)
		})
	}
	checkLabels(t, text, append([]string{p.from, p.to, keys["alice"]}, "coffee", "last-one", "unicorn", "secret-key", "127.0.0.1"))
}

// checkLabels looks for labels whose values come from requests.
func checkLabels(t *testing.T, text string, secrets []string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		for _, m := range family.Metric {
			if i := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return !slices.Contains(labels, l.GetName()) }); i >= 0 {
				t.Errorf("%s has the label %s: it may have a value for each customer", name, m.Label[i].GetName())
			}
		}
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in /metrics", secret)
		}
	}
}
