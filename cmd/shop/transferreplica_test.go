// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/compose/local/stack"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func do(t *testing.T, what func(context.Context) error) {
	t.Helper()
	if err := what(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wipe restarts an etcd without its data, with the same flags, and so with the same cluster id.
func wipe(t *testing.T, etcd *stack.Server) {
	t.Helper()
	do(t, etcd.Kill)
	if err := os.RemoveAll(filepath.Join(servertest.Env(t, "SHOP_STACK"), etcd.Name, "data")); err != nil {
		t.Fatal(err)
	}
	do(t, etcd.Start)
}

// transferReplica is a replica, with an account of alice and one of bob.
type transferReplica struct {
	*replica
	from, to string
}

func startTransferReplica(t *testing.T, url, key string, flags ...string) transferReplica {
	t.Helper()
	ids := accounts(t, url)
	return transferReplica{startReplica(t, url, key, append([]string{"--strategy=row"}, flags...)...), ids["alice"], ids["bob"]}
}

func (p transferReplica) pay(key string, more ...string) (int, string) {
	return p.send("POST", "/v1/transfers", key, fmt.Sprintf(`{"from":%q,"to":%q,"amount":100,"currency":"EUR"%s}`, p.from, p.to, strings.Join(more, "")))
}

func (p transferReplica) wantHealth(transfers string) {
	p.t.Helper()
	p.wantReady(transfers, "ok")
}

func (r *replica) wantReady(transfers, wallets string) {
	r.t.Helper()
	status := map[bool]string{true: "ok", false: "degraded"}[transfers == "ok" && wallets == "ok"]
	want := fmt.Sprintf(`{"status":%q,"postgres":"ok","locks":"ok","transfers":%q,"wallets":%q}`, status, transfers, wallets)
	locktest.Eventually(r.t, want, func() bool { // /readyz caches its result for a moment
		code, body := r.get(r.url + "/readyz")
		return code == 200 && strings.TrimSpace(body) == want
	})
}

// payBy pays with a strategy of the request's choice.
func (p transferReplica) payBy(strategy, key string) (int, string) {
	return p.send("POST", "/v1/transfers?strategy="+strategy, strategy+key, fmt.Sprintf(`{"from":%q,"to":%q,"amount":1,"currency":"EUR"}`, p.from, p.to))
}
