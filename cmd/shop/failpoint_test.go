// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/compose/local/stack/stacktest"
	"shop/inventory"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
	"shop/wallet"
)

// pauses runs a failpoint n times on a simulated clock.
func pauses(t *testing.T, text string, seed uint64, n int) (took []time.Duration) {
	t.Helper()
	var f failpoint
	if err := f.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := hook[inventory.Step]("inventory", []failpoint{f}, exponential(seed))
		for range n {
			start := time.Now()
			h(t.Context(), inventory.Step(f.step), "row")
			took = append(took, time.Since(start))
			other := time.Now()
			h(t.Context(), inventory.AfterCommit, "row")
			if time.Since(other) != 0 {
				t.Error("it happens at another step")
			}
		}
	})
	return took
}

func TestFailpoint_ExpIsExponentialAndComesFromItsSeed(t *testing.T) {
	const mean = 2 * time.Millisecond
	const n = 2000
	took := pauses(t, "after-guard=exp:2ms", 1, n)
	var sum time.Duration
	short := 0
	for _, d := range took {
		sum += d
		if d < mean*7/10 { // half of an exponential distribution lies below 0.69 of its mean
			short++
		}
	}
	if got := sum / n; got < mean*9/10 || got > mean*11/10 {
		t.Errorf("mean %v, want %v", got, mean)
	}
	if short < n*45/100 || short > n*55/100 {
		t.Errorf("%d of %d are short", short, n)
	}
	if !slices.Equal(took, pauses(t, "after-guard=exp:2ms", 1, n)) {
		t.Error("the same seed draws other pauses")
	}
	if slices.Equal(took, pauses(t, "after-guard=exp:2ms", 2, n)) {
		t.Error("another seed draws the same pauses")
	}
}

func TestFailpoint_SleepIsConstantAndEndsWithItsContext(t *testing.T) {
	if took := pauses(t, "before-commit=sleep:3s", 1, 1); took[0] != 3*time.Second {
		t.Errorf("slept %v", took[0])
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		hook[inventory.Step]("inventory", []failpoint{{step: "after-guard", action: "sleep", pause: time.Hour}}, nil)(ctx, inventory.AfterGuard, "row")
		if took := time.Since(start); took != time.Second {
			t.Errorf("slept %v", took)
		}
	})
}

func TestFailpoint_NoneIsNil(t *testing.T) {
	if hook[inventory.Step]("inventory", nil, nil) != nil || hook[transfer.Step]("transfer", nil, nil) != nil || hook[wallet.Step]("wallet", nil, nil) != nil {
		t.Error("production pays for failpoints")
	}
}

// A step without a flow applies to every flow that has it; a flow without the step
// gets no hook.
func TestFailpoint_AppliesToEveryFlowWithItsStepUnlessItNamesOne(t *testing.T) {
	for text, want := range map[string][3]bool{ // inventory, transfer, wallet
		"after-guard=sleep:1s":             {true, true, true},
		"after-begin=sleep:1s":             {true, true, true},
		"after-call=sleep:1s":              {false, false, true},
		"inventory/after-guard=sleep:1s":   {true, false, false},
		"transfer/after-guard=exp:2ms":     {false, true, false},
		"transfer/before-acquire=kill":     {false, true, false},
		"transfer/before-commit=stop":      {false, true, false},
		"wallet/before-commit=stop":        {false, false, true},
		"inventory/before-commit=sleep:1s": {true, false, false},
	} {
		var f failpoint
		if err := f.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		points := []failpoint{f}
		stock := hook[inventory.Step]("inventory", points, exponential(1))
		money := hook[transfer.Step]("transfer", points, exponential(1))
		cash := hook[wallet.Step]("wallet", points, exponential(1))
		if got := [3]bool{stock != nil, money != nil, cash != nil}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"inventory/after-call=kill", "transfer/after-call=kill", "cinema/after-guard=kill", "transfer/=kill", "/after-guard=kill", "transfer=kill"} {
		if err := new(failpoint).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// A child process dies at the given step, and leaves nothing half done.
func TestFailpoint_KillEndsTheProcessAtItsStep(t *testing.T) {
	url, keys := newDatabase(t)
	ids := accounts(t, url)
	for step, want := range map[string]int64{
		"before-commit": 0, "after-commit": 1, // of a purchase
		"transfer/before-acquire": 0, "transfer/before-commit": 0, "transfer/after-commit": 1,
	} {
		table := "orders"
		if strings.HasPrefix(step, "transfer/") {
			table = "transfers"
		}
		diesAt(t, step, url, keys["alice"], func(r *replica) (int, string) {
			if table == "orders" {
				return r.buy(step)
			}
			return transferReplica{r, ids["alice"], ids["bob"]}.pay(step)
		})
		if got := query(t, url, `SELECT count(*) FROM `+table+` WHERE idempotency_key = $1`, step); got != want {
			t.Errorf("%s: %d %s, want %d", step, got, table, want)
		}
	}
}

// The same for a wallet. Its lock ends with the transaction of the dead process, which
// the server keeps for a minute: each step has its own wallet, and the test its own server.
func TestFailpoint_KillEndsTheProcessAtAStepOfAWallet(t *testing.T) {
	db := ownMongo(t, stacktest.Private(t, "mongo")[0].Env["SHOP_MONGO_URL"])
	url, keys := newDatabase(t)
	var w wallet.Wallet
	if err := db.Collection("wallets").FindOne(t.Context(), bson.D{{Key: "_id", Value: uuid.MustParse(wallets(t, url)["alice"])}}).Decode(&w); err != nil {
		t.Fatal(err)
	}
	for _, step := range wallet.Steps() {
		id := openWallet(t, db, w.Owner, 0)
		diesAt(t, "wallet/"+string(step), url, keys["alice"], func(r *replica) (int, string) { return walletReplica{r, id}.credit(string(step)) })
		var want int64
		if step == wallet.AfterCommit || step == wallet.AfterRelease {
			want = 1
		}
		done, err := db.Collection("wallet_operations").CountDocuments(t.Context(), bson.D{{Key: "key", Value: string(step)}})
		if err != nil || done != want {
			t.Errorf("%s: %d operations, %v; want %d", step, done, err, want)
		}
	}
}

// The request with the key stops at its step, with nothing committed, until the process is
// continued. No other request stops.
func TestFailpoint_StopHoldsTheRequestWithTheKeyAtItsStep(t *testing.T) {
	url, keys := newDatabase(t)
	for step, want := range map[string]int64{"before-commit": 0, "after-commit": 1} {
		key := "held-" + step
		cmd, ended, r := startProcess(t, url, keys["alice"], "inventory/"+step+"=stop:"+key)
		if status, body := r.buy("other-" + step); status != 201 {
			t.Errorf("a request with another key: %d %s", status, body)
		}
		answer := make(chan int, 1)
		go func() {
			status, _ := r.buy(key)
			answer <- status
		}()
		locktest.Eventually(t, step+": stopped", func() bool { return state(t, cmd.Process.Pid) == "T" })
		if got := query(t, url, `SELECT count(*) FROM orders WHERE idempotency_key = $1`, key); got != want || len(answer) > 0 {
			t.Errorf("%s: %d orders, %d answers; want %d and none", step, got, len(answer), want)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if status := <-answer; status != 201 {
			t.Errorf("%s: %d", step, status)
		}
		if status, body := r.buy(key); status != 201 {
			t.Errorf("again: %d %s", status, body)
		}
		_ = cmd.Process.Kill()
		<-ended
	}
}

// A batch of one passes both failpoints. One of several ends the process, or stops it once after each SIGUSR1.
func TestFailpoint_OnlyABatchOfSeveralDiesOrStops(t *testing.T) {
	url, keys := newDatabase(t)
	for action, dies := range map[string]bool{"kill-batch": true, "stop-batch": false} {
		cmd, ended, r := startProcess(t, url, keys["alice"], "inventory/after-guard="+action, "--strategy=combined")
		if status, body := r.buy(action); status != 201 {
			t.Errorf("%s: a request alone: %d %s", action, status, body)
		}
		var stop atomic.Bool
		var answers atomic.Int64
		var clients sync.WaitGroup
		for n := range 8 {
			clients.Go(func() {
				for i := 0; !stop.Load(); i++ {
					if status, _ := r.buy(fmt.Sprint(action, "-", n, "-", i)); status != 0 {
						answers.Add(1)
					}
				}
			})
		}
		if !dies {
			goesOn := func(what string) { // for several batches
				before := answers.Load()
				locktest.Eventually(t, what, func() bool { return answers.Load() > before+100 })
			}
			goesOn("answers before SIGUSR1")
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			locktest.Eventually(t, "stopped", func() bool { return state(t, cmd.Process.Pid) == "T" })
			_ = cmd.Process.Signal(syscall.SIGCONT)
			goesOn("answers after SIGCONT")
			_ = cmd.Process.Kill()
		}
		<-ended
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Errorf("%s: %v", action, cmd.ProcessState)
		}
		stop.Store(true)
		clients.Wait()
	}
}

// state returns the kernel's state of a process: T is stopped.
func state(t *testing.T, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// startProcess starts the shop in a child process with a failpoint.
func startProcess(t *testing.T, url, key, point string, flags ...string) (*exec.Cmd, <-chan error, *replica) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"serve", "--listen=127.0.0.1:0", "--metrics-listen=",
		"--postgres-url", url, "--redis-url", servertest.Env(t, "SHOP_REDIS_URL"), "--lab", "--strategy=row", "--lock-prefix", t.Name(), "--failpoint=" + point,
	}, flags...)...)
	r := &replica{t: t, key: key, log: &lines{}, end: make(chan error, 1)}
	cmd.Env, cmd.Stderr = append(os.Environ(), asShop+"=1"), r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.awaitServing()
	return cmd, ended, r
}

// diesAt starts a process with a failpoint, and sends requests until it is dead.
func diesAt(t *testing.T, step, url, key string, request func(*replica) (int, string)) {
	t.Helper()
	cmd, ended, r := startProcess(t, url, key, step+"=kill")
	locktest.Eventually(t, step+": no answer", func() bool { // busy until the locks of the previous process have expired
		status, _ := request(r)
		return status == 0
	})
	<-ended
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("%s: %v", step, cmd.ProcessState)
	}
}
