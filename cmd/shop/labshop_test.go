// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"shop/cmd/shop/api"
	"shop/cmd/shop/lab"
)

// firstState is the first event of the page of the shop.
func (r *replica) firstState() (state struct {
	Customers []struct {
		Name    string
		Account struct{ ID string }
		Wallet  *struct{ Balance int64 }
	}
	Down []struct{ Store, Means string }
},
) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second) // the stream has no end of its own
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/lab/shop/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &state); err != nil {
				r.t.Fatal(err)
			}
			return state
		}
	}
	r.t.Fatal("no state: ", ctx.Err())
	return state
}

// The page uses what seed has made, through this replica, as the API does.
func TestLabShop_UsesThisReplicaAndTheDemo(t *testing.T) {
	url, keys := newDatabase(t)
	ids := accounts(t, url)
	// Nothing listens at port 1: etcd is down, and there is no MongoDB.
	r := startReplica(t, url, keys["alice"], "--lab", "--etcd-endpoints=127.0.0.1:1", "--mongo-url=")
	if status, _ := r.get(r.url + "/lab/shop"); status != 200 {
		t.Errorf("the page: %d", status)
	}
	status, first := r.send("POST", "/lab/shop/alice/v1/orders?strategy=redis%2Brow", "k", `{"lines":[{"sku":"coffee","quantity":1}]}`)
	if again, body := r.buy("k"); status != 201 || again != 201 || body != first { // the same client: its key has one effect
		t.Errorf("the page %d %s, the API %d %s", status, first, again, body)
	}
	state := r.firstState()
	if len(state.Customers) != 2 || state.Customers[0].Name != "alice" || state.Customers[0].Account.ID != ids["alice"] || state.Customers[1].Wallet != nil {
		t.Errorf("customers %+v, want alice with %s, and bob", state.Customers, ids["alice"])
	}
	if len(state.Down) != 2 || state.Down[0].Store != "etcd" || !strings.Contains(state.Down[0].Means, "Choose row") || !strings.Contains(state.Down[1].Means, "--mongo-url") {
		t.Errorf("down: %+v", state.Down)
	}
	transfer := `{"from":"` + ids["alice"] + `","to":"` + ids["bob"] + `","amount":1,"currency":"EUR"}`
	if status, body := r.send("POST", "/lab/shop/alice/v1/transfers", "t1", transfer); status != 503 || !strings.Contains(body, "Nothing was done") {
		t.Errorf("with etcd down: %d %s", status, body)
	}
	if status, body := r.send("POST", "/lab/shop/alice/v1/transfers?strategy=row", "t2", transfer); status != 201 {
		t.Errorf("without etcd: %d %s", status, body)
	}
}

func TestOutages_NameEachStore(t *testing.T) {
	for want, got := range map[string][]string{
		"PostgreSQL": names(outages(api.Degraded{}, errors.New("refused"), false)),
		"Redis":      names(outages(api.Degraded{Locks: true}, nil, false)),
		"MongoDB":    names(outages(api.Degraded{Wallets: true}, nil, false)),
		"":           names(outages(api.Degraded{}, nil, false)),
	} {
		if strings.Join(got, ",") != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func names(list []lab.Outage) (names []string) {
	for _, o := range list {
		names = append(names, o.Store)
	}
	return names
}
