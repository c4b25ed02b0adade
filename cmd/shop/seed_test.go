// SPDX-License-Identifier: MIT

package main

import (
	"maps"
	"strings"
	"sync"
	"testing"
)

func TestSeed_IsIdempotentAndPrintsAKeyOnce(t *testing.T) {
	url, keys := newDatabase(t)
	if len(keys) != 3 || keys["alice"] == keys["bob"] || len(keys["admin"]) != len("shop_")+43 {
		t.Fatalf("keys: %v", keys)
	}
	r := startReplica(t, url, keys["alice"], "--strategy=row")
	if status, body := r.buy("k1"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	out, err := shop(t, "seed", "--postgres-url", url)
	if err != nil || len(readSeed(out, "KEY")) != 0 || !strings.Contains(out, "--rotate") {
		t.Errorf("again: %v\n%s", err, out)
	}
	_, list := r.get(r.url + "/v1/products")
	if !strings.Contains(list, "unauthorized") {
		t.Errorf("without a key: %s", list)
	}
	out, err = shop(t, "seed", "--rotate", "--postgres-url", url)
	rotated := readSeed(out, "KEY")
	if err != nil || len(rotated) != 3 || rotated["alice"] == keys["alice"] {
		t.Errorf("rotate: %v\n%s", err, out)
	}
	r.key = rotated["alice"]
	if status, body := r.buy("k2"); status != 201 {
		t.Errorf("with the new key: %d %s", status, body)
	}
	for line := range strings.Lines(out) { // eval "$(shop seed)" must do no harm
		if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "export SHOP_KEY_") && !strings.HasPrefix(line, "export SHOP_ACCOUNT_") && !strings.HasPrefix(line, "export SHOP_WALLET_") {
			t.Errorf("a shell would run %q", line)
		}
	}
}

func TestSeed_MakesOneAccountForEachCustomerAndPrintsItEachTime(t *testing.T) {
	url, _ := newDatabase(t)
	first := accounts(t, url)
	if len(first) != 2 || first["alice"] == "" || first["bob"] == "" || first["alice"] == first["bob"] {
		t.Fatalf("accounts: %v", first)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if again := accounts(t, url); !maps.Equal(again, first) {
				t.Errorf("again: %v, want %v", again, first)
			}
		})
	}
	all.Wait()
	if n := query(t, url, `SELECT count(*) FROM accounts`); n != 2 {
		t.Errorf("%d accounts", n)
	}
}

func TestClient_AddListRotate(t *testing.T) {
	url, _ := newDatabase(t)
	key, err := shop(t, "client", "add", "carol", "--postgres-url", url)
	if err != nil || !strings.HasPrefix(key, "shop_") {
		t.Fatalf("%q %v", key, err)
	}
	if _, err := shop(t, "client", "add", "carol", "--postgres-url", url); exitCode(err) != 1 || !strings.Contains(err.Error(), "client rotate") {
		t.Errorf("carol twice: %v", err)
	}
	rotated, err := shop(t, "client", "rotate", "carol", "--postgres-url", url)
	if err != nil || rotated == key || !strings.HasPrefix(rotated, "shop_") {
		t.Errorf("%q %v", rotated, err)
	}
	if _, err := shop(t, "client", "rotate", "absent", "--postgres-url", url); exitCode(err) != 1 {
		t.Errorf("a key for an unknown client: %v", err)
	}
	list, err := shop(t, "client", "list", "--postgres-url", url)
	if err != nil || !strings.Contains(list, "carol") || strings.Contains(list, key) || strings.Contains(list, "shop_") {
		t.Errorf("%v\n%s", err, list)
	}
}
