// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"

	"shop/wallet/bonus/bonustest"
)

// Without a reply of the bonus service nothing is credited, and the key is still open.
func TestServe_ABonusServiceThatDoesNotAnswerCreditsNothing(t *testing.T) {
	db := sharedMongo(t)
	url, keys := newDatabase(t)
	id, service := wallets(t, url)["alice"], bonustest.Serve(t)
	broken := map[string]string{"silent": bonustest.Silent(t), "gone": "http://127.0.0.1:1", "another service": service.URL() + "/v2"}
	for name, at := range broken {
		p := startWalletReplica(t, url, keys["alice"], id, "--bonus-url", at).open()
		if status, body := p.credit("k"); status != 503 || !strings.Contains(body, "/problems/busy") { // 504 would mean that the request timed out
			t.Errorf("%s: %d %s, want 503 busy", name, status, body)
		}
		if status, body := p.debit(name); status != 201 { // needs no bonus
			t.Errorf("%s: a debit: %d %s", name, status, body)
		}
		if _, text := p.get(p.metrics); strings.Contains(text, `wallet_events_total{kind="unavailable",strategy="lockid"} 0`) {
			t.Errorf("%s: it is not counted", name)
		}
	}
	if n := documents(t, db, "wallet_operations"); n != int64(len(broken)) {
		t.Errorf("%d operations; want the debits, %d", n, len(broken))
	}
	p := startWalletReplica(t, url, keys["alice"], id, "--bonus-url", service.URL()+"/").open()
	if status, body := p.credit("k"); status != 201 || !strings.Contains(body, `"bonus":1,`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := p.read(); status != 200 || !strings.Contains(body, `"balance":10098,`) { // 10000 + 101 − 3
		t.Errorf("%d %s", status, body)
	}
}

func TestServe_WithoutABonusServiceThereIsNoBonusAndTheLabStartsOne(t *testing.T) {
	sharedMongo(t)
	url, keys := newDatabase(t)
	id := wallets(t, url)["alice"]
	for lab, want := range map[string]string{"--lab=false": `"bonus":0,`, "--lab=true": `"bonus":1,`} {
		p := startWalletReplica(t, url, keys["alice"], id, lab).open()
		if status, body := p.credit(lab); status != 201 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", lab, status, body, want)
		}
	}
}
