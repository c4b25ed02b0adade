// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"

	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
)

// etcd is wiped, but PostgreSQL still has its fences: transfers are refused, even after
// a restart, until an operator begins a new epoch.
func TestEpoch_AfterAWipeTransfersAreRefusedUntilANewEpoch(t *testing.T) {
	etcd := stacktest.Private(t, "etcd")[0]
	url, keys := newDatabase(t)
	flags := []string{"--etcd-endpoints", etcd.Addr, "--transfer-lock-ttl=3s"}
	p := startTransferReplica(t, url, keys["alice"], flags...)
	p.wantHealth("ok")
	status, stored := p.pay("before")
	if status != 201 {
		t.Fatalf("%d %s", status, stored)
	}
	wipe(t, etcd)
	wantEpoch := func(name string, p transferReplica) {
		t.Helper()
		var last string
		locktest.Eventually(t, name+" says fence-epoch", func() bool { // until the replica notices that etcd is up, it says busy
			_, last = p.pay("after")
			return !strings.Contains(last, "/problems/busy")
		})
		if !strings.Contains(last, "/problems/fence-epoch") || !strings.Contains(last, `"status":503`) {
			t.Errorf("%s: %s", name, last)
		}
	}
	wantEpoch("the server that was there", p)
	restarted := startTransferReplica(t, url, keys["alice"], flags...)
	wantEpoch("one that was started since", restarted)
	if status, body := restarted.pay("before"); status != 201 || body != stored {
		t.Errorf("a replay: %d %s", status, body)
	}

	epoch := []string{"fence-epoch", "--postgres-url", url, "--lock-prefix", t.Name(), "--etcd-endpoints", etcd.Addr}
	out, err := shop(t, epoch...)
	if err != nil || !strings.Contains(out, "2 accounts") || !strings.Contains(out, "restart") {
		t.Fatalf("%v\n%s", err, out)
	}
	wantEpoch("the server that was not restarted", restarted)
	again := startTransferReplica(t, url, keys["alice"], flags...)
	again.wantHealth("ok")
	if status, body := again.pay("after"); status != 201 {
		t.Errorf("after the command and a restart: %d %s", status, body)
	}
	if out, err := shop(t, "audit", "--postgres-url", url); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := query(t, url, `SELECT count(*) FROM transfers`); n != 2 {
		t.Errorf("%d transfers, want 2", n)
	}
}

func TestEpoch_WithoutEtcdItChangesNothing(t *testing.T) {
	url, _ := newDatabase(t)
	execute(t, url, `UPDATE accounts SET fence = 7, fence_epoch = 'old'`)
	out, err := shop(t, "fence-epoch", "--postgres-url", url, "--etcd-endpoints=127.0.0.1:1")
	if exitCode(err) != 1 {
		t.Errorf("exit status %d, %v\n%s", exitCode(err), err, out)
	}
	if n := query(t, url, `SELECT count(*) FROM accounts WHERE fence_epoch = 'old'`); n != 2 {
		t.Errorf("%d accounts are as they were, want 2", n)
	}
}
