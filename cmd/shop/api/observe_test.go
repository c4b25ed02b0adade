// SPDX-License-Identifier: MIT

package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"shop/cmd/shop/api"
	"shop/inventory"
)

func TestLog_OneLineForEachRequestAndNoSecret(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.buy("private-key-1", "coffee", "1", "X-Request-Id: from-me.1")
	s.buy("private-key-1", "coffee", "1")
	s.do("GET", "/v1/orders/1?secret=query", "")
	s.do("GET", "/v1/products", "", "Authorization: Bearer stolen-key", "X-Forwarded-For: 10.9.8.7")
	s.do("GET", "/path/made/up", "", "Authorization: Bearer stolen-key", "X-Request-Id: a\tb")
	log := s.log.String()
	for _, secret := range append([]string{"private-key-1", "secret=query", "made/up", "stolen-key", "10.9.8.7", "a\\tb"}, s.keys["alice"], strings.TrimPrefix(s.keys["alice"], "shop_")) {
		if strings.Contains(log, secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
	var got []map[string]any
	for _, text := range strings.Split(strings.TrimSpace(log), "\n") {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		got = append(got, line)
	}
	if len(got) != 5 {
		t.Fatalf("%d lines for 5 requests: %s", len(got), log)
	}
	for i, want := range []map[string]any{
		{"route": "/v1/orders", "method": "POST", "status": 201.0, "request_id": "from-me.1", "client": s.ids["alice"].String(), "replayed": nil, "problem": nil},
		{"route": "/v1/orders", "method": "POST", "status": 201.0, "client": s.ids["alice"].String(), "replayed": true},
		{"route": "/v1/orders/{id}", "method": "GET", "status": 400.0, "problem": string(api.TypeMalformed)},
		{"route": "/v1/products", "status": 401.0, "problem": string(api.TypeUnauthorized), "remote": "127.0.0.1"},
		{"route": "unmatched", "status": 404.0, "problem": string(api.TypeNotFound), "client": nil},
	} {
		for name, v := range want {
			if got[i][name] != v {
				t.Errorf("line %d: %s is %v, want %v", i, name, got[i][name], v)
			}
		}
		if _, ok := got[i]["duration_ms"].(float64); !ok {
			t.Errorf("line %d has no duration", i)
		}
	}
	if got[0]["key_sha256"] == nil || got[0]["key_sha256"] != got[1]["key_sha256"] {
		t.Errorf("key: %v and %v", got[0]["key_sha256"], got[1]["key_sha256"])
	}
}

func TestLog_ARefusedDebitNamesClientAndAddress(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.account("alice", 100), s.account("bob", 100)
	s.move("k", moveOf(b, a, "1")).want(t, 403, api.TypeForbidden)
	var line map[string]any
	if err := json.Unmarshal([]byte(s.log.String()), &line); err != nil {
		t.Fatalf("%v: %s", err, s.log)
	}
	for name, want := range map[string]any{
		"client": s.ids["alice"].String(), "remote": "127.0.0.1", "problem": string(api.TypeForbidden), "route": "/v1/transfers", "status": 403.0,
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
	if line["key_sha256"] == nil || line["request_id"] == nil {
		t.Errorf("no key or request id: %v", line)
	}
}

func TestMetrics_LabelsComeFromTheSpecNotFromTheRequest(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, path := range []string{"/a", "/b", "/v1/products/x1", "/v1/products/x2", "/v1/nothing"} {
		s.do("GET", path, "")
	}
	s.do("BREW", "/v1/products", "")
	families := must(s.metrics.Gather())(t)
	series := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				series[l.GetName()+"="+l.GetValue()] = true
			}
		}
	}
	for label := range series {
		name, value, _ := strings.Cut(label, "=")
		ok := map[string]bool{"unmatched": true, "/v1/products/{sku}": true, "GET": true, "other": true, "404": true, "405": true}[value]
		if !ok && name != "limit" && name != "type" { // names from doc.go, and the problems of openapi.yaml
			t.Errorf("label %s=%q", name, value)
		}
	}
	if got := s.metric("http_requests_total"); got != 6 {
		t.Errorf("%v requests, want 6", got)
	}
}

// metric sums a family.
func (s *shop) metric(name string) float64 {
	s.t.Helper()
	var sum float64
	for _, f := range must(s.metrics.Gather())(s.t) {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestStrategy_MayBeRequestedInTheLabOnly(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Lab = []string{"row", "naive"} })
	buy := func(query, key string) answer {
		t.Helper()
		return s.do("POST", "/v1/orders"+query, good, "Idempotency-Key: "+key)
	}
	buy("?strategy=naive", "k1").want(t, 201, "")
	buy("?strategy=row", "k1").want(t, 201, "") // the strategy is not part of the intent
	buy("?strategy=nothing", "k2").want(t, 400, api.TypeMalformed)
	buy("?strategy=", "k2").want(t, 400, api.TypeMalformed)
	for _, query := range []string{"?strategy=redis+row", "?strategy=redis%2Brow"} { // in the spec, but not offered here
		if a := buy(query, "k2").want(t, 400, api.TypeMalformed); !strings.HasSuffix(a.problem.Detail, "There are: row, naive.") {
			t.Errorf("%s: %s", query, a.body)
		}
	}
	buy("", "k2").want(t, 201, "")
}
