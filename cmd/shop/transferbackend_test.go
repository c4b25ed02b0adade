// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// wantAtOnce repeats a request until it is answered without the two seconds that a probe waits.
func (r *replica) wantAtOnce(what string, request func()) {
	r.t.Helper()
	var waits []time.Duration
	for len(waits) < 5 {
		start := time.Now()
		request()
		if waits = append(waits, time.Since(start)); waits[len(waits)-1] < 1500*time.Millisecond {
			return
		}
	}
	r.t.Errorf("%s: never at once: %v", what, waits)
}

// wantWithoutEtcd checks that transfers are refused at once and all else works.
func (p transferReplica) wantWithoutEtcd(stored string) {
	p.t.Helper()
	p.pay("first-to-notice") // waits for a reply of etcd
	// Only a probe waits for etcd, for 2 s, and one begins every 250 ms: it may be this request.
	p.wantAtOnce("a transfer", func() {
		if status, body := p.pay("second"); status != 503 {
			p.t.Errorf("%d %s, want 503", status, body)
		}
	})
	for i := range 5 {
		start := time.Now()
		status, body := p.pay(fmt.Sprintf("while-down-%d", i))
		if status != 503 || !strings.Contains(body, "/problems/busy") {
			p.t.Errorf("%d %s, want 503 busy", status, body)
		}
		if took := time.Since(start); took > 10*time.Second { // a probe is one of 2 s
			p.t.Errorf("replied after %v", took)
		}
	}
	p.wantHealth("unreachable")
	p.wantBreaker(1)
	if status, body := p.buy("while-down-" + stored); status != 201 {
		p.t.Errorf("a purchase: %d %s", status, body)
	}
	if status, body := p.send("GET", "/v1/accounts/"+p.from, "", ""); status != 200 {
		p.t.Errorf("the account: %d %s", status, body)
	}
	if status, body := p.send("GET", "/v1/transfers/"+p.from, "", ""); status != 404 { // the lookup works, and finds none
		p.t.Errorf("a transfer: %d %s", status, body)
	}
}

func (p transferReplica) wantBreaker(open int) {
	p.t.Helper()
	if _, text := p.get(p.metrics); !strings.Contains(text, fmt.Sprintf("\nbreaker_open{server=\"etcd\"} %d\n", open)) {
		p.t.Errorf("the breaker is not as it should be: want %d", open)
	}
}

// The TTL is longer than the outages: the lease of the replica does not expire during one, so only the breaker
// keeps transfers from waiting for etcd.
func TestServe_WithoutEtcdItSellsAndShowsAndMoneyMovesAgainByItself(t *testing.T) {
	etcd := stacktest.Private(t, "etcd")[0]
	url, keys := newDatabase(t)
	p := startTransferReplica(t, url, keys["alice"], "--etcd-endpoints", etcd.Addr, "--transfer-lock-ttl=1m")
	p.wantHealth("ok")
	status, stored := p.pay("before")
	if status != 201 {
		t.Fatalf("%d %s", status, stored)
	}
	for name, f := range map[string]struct{ end, back func(context.Context) error }{
		"gone":   {etcd.Kill, etcd.Start},
		"silent": {etcd.Pause, etcd.Resume},
	} {
		do(t, f.end)
		p.wantWithoutEtcd(name)
		if status, body := p.pay("before"); status != 201 || body != stored {
			t.Errorf("%s: a replay: %d %s", name, status, body)
		}
		do(t, f.back)
		locktest.Eventually(t, name+": money moves", func() bool {
			status, _ := p.pay("after-" + name)
			return status == 201
		})
		p.wantHealth("ok")
		p.wantBreaker(0)
	}
	if n := query(t, url, `SELECT count(*) FROM transfers`); n != 3 {
		t.Errorf("%d transfers, want 3", n)
	}
	if _, text := p.get(p.metrics); strings.Contains(text, `transfer_events_total{kind="unavailable",strategy="etcd-fenced"} 0`) {
		t.Error("it is not counted")
	}
}

func TestServe_StartedWithoutEtcdItSellsAndMoneyMovesWhenItComes(t *testing.T) {
	etcd := stacktest.Private(t, "etcd")[0]
	do(t, etcd.Kill)
	url, keys := newDatabase(t)
	p := startTransferReplica(t, url, keys["alice"], "--etcd-endpoints", etcd.Addr, "--transfer-lock-ttl=3s")
	p.wantWithoutEtcd("from-the-start")
	do(t, etcd.Start)
	locktest.Eventually(t, "money moves", func() bool {
		status, _ := p.pay("after")
		return status == 201
	})
	p.wantHealth("ok")
}

// A server whose strategy does not use etcd starts without etcd.
func TestServe_AStrategyWithoutEtcdNeedsNone(t *testing.T) {
	url, keys := newDatabase(t)
	t.Setenv("SHOP_ETCD_ENDPOINTS", "")
	p := startTransferReplica(t, url, keys["alice"], "--transfer-strategy=row")
	if status, body := p.pay("k"); status != 201 {
		t.Errorf("%d %s", status, body)
	}
	p.wantHealth("ok")
}

// untilDone retries while the answer is busy or in-progress, as a client must.
func untilDone(request func() (int, string)) (body string) {
	for range 20 {
		_, body = request()
		if !strings.Contains(body, "/problems/busy") && !strings.Contains(body, "/problems/in-progress") {
			break
		}
	}
	return body
}

// One key, sent to three replicas at once, makes one transfer and gets one answer.
func TestServe_OneKeyAtThreeReplicasAtOnceIsOneTransfer(t *testing.T) {
	url, keys := newDatabase(t)
	var replicas []transferReplica
	for range 3 {
		replicas = append(replicas, startTransferReplica(t, url, keys["alice"]))
		replicas[len(replicas)-1].wantHealth("ok")
	}
	for i := range 10 {
		var (
			bodies [3]string
			all    sync.WaitGroup
		)
		for n, p := range replicas {
			all.Go(func() { bodies[n] = untilDone(func() (int, string) { return p.pay(fmt.Sprintf("k%d", i)) }) })
		}
		all.Wait()
		if bodies[0] != bodies[1] || bodies[1] != bodies[2] || !strings.Contains(bodies[0], `"posted"`) {
			t.Fatalf("%q", bodies)
		}
	}
	if n := query(t, url, `SELECT count(*) FROM transfers`); n != 10 {
		t.Errorf("%d transfers, want 10", n)
	}
}

// Without etcd the lab offers the strategies that need none.
func TestServe_TheLabOffersOnlyWhatItsServersCanDo(t *testing.T) {
	url, keys := newDatabase(t)
	for endpoints, want := range map[string]int{servertest.Env(t, "SHOP_ETCD_ENDPOINTS"): 201, "": 400} {
		p := startTransferReplica(t, url, keys["alice"], "--lab", "--transfer-strategy=row", "--etcd-endpoints="+endpoints)
		for _, strategy := range []string{"row", "naive", "serializable"} {
			if status, body := p.payBy(strategy, endpoints); status != 201 {
				t.Errorf("%s with %q: %d %s", strategy, endpoints, status, body)
			}
		}
		for _, strategy := range []string{"etcd-fenced", "etcd-fence-only", "etcd-unfenced", "lease-id-fence"} {
			if status, body := p.payBy(strategy, endpoints); status != want {
				t.Errorf("%s with %q: %d %s", strategy, endpoints, status, body)
			}
		}
	}
}

// etcd silently raises a TTL that is too small.
func TestServe_ATTLThatEtcdCannotKeepIsRefusedAtTheStart(t *testing.T) {
	url, _ := newDatabase(t)
	_, err := shop(t, "serve", "--strategy=row", "--listen=127.0.0.1:0", "--metrics-listen=", "--postgres-url", url, "--transfer-lock-ttl=1s")
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("exit status %d, %v", exitCode(err), err)
	}
}
