// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/servertest/daemon"
	"shop/transfer"
	"shop/wallet"
)

// shopProgram is the path of shop, built for these tests.
var shopProgram string

func TestMain(m *testing.M) {
	var folder string
	shopProgram, folder = testbed.Build("shop/cmd/shop")
	goleak.VerifyTestMain(
		m,
		goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(folder)
			os.Exit(status)
		}),
	)
}

// prove runs the program with real replicas of shop. It runs again, up to twice, if the machine was too busy to
// send the load in time: such a run is inconclusive. It also runs again if a control was not caught: its load is low,
// and by chance no two of its requests may have overlapped in the database.
func prove(t *testing.T, args ...string) (status int, out, folder string, err error) {
	t.Helper()
	t.Setenv("SHOP_PROGRAM", shopProgram)
	for range 3 {
		folder = t.TempDir()
		var printed strings.Builder
		status, err = run(t.Context(), append([]string{"--out", folder}, args...), &printed, t.Output())
		if out = printed.String(); !strings.Contains(out, "the generator lagged") && !strings.Contains(out, "only 0 of 1 known-bad") {
			break
		}
	}
	return status, out, folder, err
}

func TestProve_RealReplicasAreLoadedAndAudited(t *testing.T) {
	for _, flow := range []string{"inventory", "transfer"} {
		t.Run(flow, func(t *testing.T) {
			report := proven(t, "--flow", flow, "--strategy", "row", "--fault", "none", "--replicas", "2", "--duration", "4s", "--rate", "50")
			s := report.Scenarios[0]
			if !report.AsExpected || s.Verdict != loadtest.Safe || s.Requests < 200 || s.OK+s.Rejected != s.Requests || s.OK == 0 || s.Rejected == 0 || s.Checked < s.Requests {
				t.Errorf("%+v", s)
			}
		})
	}
}

// proven runs a proof of one scenario, and checks the report in all its forms.
func proven(t *testing.T, args ...string) (report loadtest.Report) {
	t.Helper()
	status, out, folder, err := prove(t, args...)
	if status != asExpected || err != nil {
		t.Fatal(status, out, err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "prove.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &report); err != nil || len(report.Scenarios) != 1 {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := os.Stat(filepath.Join(folder, "index.html")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out, "writes") || !strings.Contains(out, "index.html") {
		t.Errorf("printed:\n%s", out)
	}
	return report
}

// A rate must be low enough for the history to be decided within the time limit of a control: a busy machine has
// dozens of requests for one product under way at once. On a fast one too few overlap at the lower rate.
func TestProve_TheControlOversellsAndIsCaught(t *testing.T) {
	var shown []string
	for _, rate := range []string{"100", "50"} {
		s := proven(t, "--flow", "inventory", "--strategy", "naive", "--fault", "none", "--rate", rate, "--duration", "3s").Scenarios[0]
		if s.Violations["S1"] > 0 && s.Violations["oversold"] > 0 && s.Violations["I-LIN"] > 0 && s.Verdict == loadtest.Violated {
			return
		}
		shown = append(shown, fmt.Sprintf("at %s a second: %s %v", rate, s.Verdict, s.Violations))
	}
	t.Error(strings.Join(shown, "\n"))
}

func TestProve_WhatCannotRunIsExitStatus2AndSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"no servers", map[string]string{"SHOP_POSTGRES_URL": "", "SHOP_REDIS_URL": ""}, nil, "bin/local exec"},
		{"no stack to break", map[string]string{"SHOP_STACK": ""}, []string{"--quick"}, "bin/local exec"},
		{"a stack that is gone", map[string]string{"SHOP_STACK": "/nowhere"}, []string{"--quick"}, "bin/local exec"},
		{"no such scenario", nil, []string{"--strategy", "hope"}, "inventory/redis+row/crash"},
		{"no program", nil, []string{"--shop", "/nowhere/shop"}, "go build -o bin/ ./cmd/shop"},
		{"one replica", nil, []string{"--replicas", "1"}, "at least 2"},
		{"no replica", nil, []string{"--replicas", "0"}, "at least 2"},
		{"a grace below 0", nil, []string{"--grace=-1s"}, "--grace above 0"},
		{"not a quick one", nil, []string{"--quick", "--strategy", "constant-lock"}, "not part of --quick"},
		{"a target with a strategy", nil, []string{"--target", "main.go", "--strategy", "row"}, "--target has none"},
		{"a target with --quick", nil, []string{"--target", "main.go", "--quick"}, "--target has none"},
		{"a target with a fault", nil, []string{"--target", "main.go", "--fault", "crash"}, "--target has none"},
		{"a target with a flow", nil, []string{"--target", "main.go", "--flow", "inventory"}, "--target has none"},
		{"a target without a file", nil, []string{"--target", "http://127.0.0.1:1"}, "--target http://127.0.0.1:1 needs a file"},
		{"a target that is no YAML", nil, []string{"--target", "main.go"}, "main.go: line "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			status, out, _, err := prove(t, c.args...)
			if status != couldNotRun || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("exit status %d, %v; want 2 and %q\n%s", status, err, c.says, out)
			}
		})
	}
}

// shop runs a command of shop to its end.
func shop(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), shopProgram, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("shop %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// startShop starts three replicas on a new database with the demo's products, until the
// test ends.
func startShop(t *testing.T) (urls, keys []string, databaseURL string) {
	t.Helper()
	db, err := site.CreateDatabase(t.Context(), os.Getenv("SHOP_POSTGRES_URL"), "prove "+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	only := []string{"--postgres-url", db.URL, "--mongo-url="}
	shop(t, append([]string{"migrate"}, only...)...)
	for _, match := range regexp.MustCompile(`SHOP_KEY_\w+=(\S+)`).FindAllStringSubmatch(shop(t, append([]string{"seed"}, only...)...), -1) {
		keys = append(keys, match[1]) // of alice, bob, and the administrator
	}
	for range 3 {
		urls = append(urls, serveShop(t, only))
	}
	return urls, keys, db.URL
}

// serveShop starts one replica.
func serveShop(t *testing.T, only []string) (url string) {
	t.Helper()
	serve := exec.Command(shopProgram, append([]string{"serve", "--strategy=row", "--transfer-strategy=row", "--listen=127.0.0.1:0", "--metrics-listen="}, only...)...)
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Spawn(serve); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}) // closed when the log has been read
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := serve.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			go func() { // a shop whose log is not read blocks at its next line
				defer close(ended)
				_, _ = io.Copy(io.Discard, log)
			}()
			return "http://" + line.Address
		}
	}
	close(ended)
	t.Fatal("shop ended before it served")
	return ""
}

// The file of Compose's service prove, here on replicas at other addresses.
func TestProve_AnyServiceIsLoadedAndJudgedByTheFileOfItsOwner(t *testing.T) {
	urls, keys, databaseURL := startShop(t)
	for name, value := range map[string]string{"SHOP_1": urls[0], "SHOP_2": urls[1], "SHOP_3": urls[2], "SHOP_KEY_ALICE": keys[0], "SHOP_KEY_BOB": keys[1], "SHOP_POSTGRES_URL": databaseURL} {
		t.Setenv(name, value)
	}
	const file = "../../compose/prove.yaml"
	folder := t.TempDir()
	junit, summary := filepath.Join(folder, "junit.xml"), filepath.Join(folder, "summary.md")
	t.Setenv("GITHUB_STEP_SUMMARY", summary)
	args := []string{"--target", file, "--duration", "2s", "--seed", "7", "--junit", junit}
	if status, out, _, err := prove(t, args...); status != asExpected || err != nil {
		t.Errorf("exit status %d, %v after\n%s", status, err, out)
	}
	for path, want := range map[string]string{junit: `failures="0"`, summary: "no violation in 1 safe one"} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v; no %q in %s", err, want, text)
		}
	}
	// more than there is: a refusal for want of stock is final
	if status, out, _, err := prove(t, "--target", file, "--duration", "4s", "--rate", "200"); status != asExpected || err != nil {
		t.Errorf("exit status %d, %v after\n%s", status, err, out)
	}
	// a file where the folder should be: nothing is sent, and no path of a report is printed
	if status, out, _, _ := prove(t, append(args, "--out", junit)...); status != couldNotRun || strings.Contains(out, "index.html") || strings.Contains(out, "requests") {
		t.Errorf("no folder for the report: exit status %d, want 2\n%s", status, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(folder, "wrong.yaml")
	if err := os.WriteFile(wrong, append(text, "\n  - {name: nothing-sold, sql: SELECT id FROM orders}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	args[1] = wrong
	if status, out, _, _ := prove(t, args...); status != notAsExpected {
		t.Errorf("a query that finds rows: exit status %d, want 1\n%s", status, out)
	}
	if text, err := os.ReadFile(junit); err != nil || !strings.Contains(string(text), `name="nothing-sold"`) || strings.Contains(string(text), `failures="0" time`) {
		t.Errorf("%v; JUnit:\n%s", err, text)
	}
}

// CI runs the quick proof: a safe strategy that is not part of it may oversell unnoticed.
func TestQuick_HasEverySafeStrategyOnceWithoutAFault(t *testing.T) {
	left := map[string]bool{}
	for _, s := range inventory.Strategies() {
		left["inventory/"+s.Name+"/none"] = s.Safe
	}
	for _, s := range transfer.Strategies() {
		left["transfer/"+s.Name+"/none"] = s.Safe
	}
	for _, s := range wallet.Strategies() {
		left["wallet/"+s.Name+"/none"] = s.Safe
	}
	for _, s := range loadtest.Quick((&environment{}).matrix()) {
		delete(left, s.Name())
	}
	for name, safe := range left {
		if safe {
			t.Errorf("%s is not part of the quick proof", name)
		}
	}
}

// A client that gets all members as one address reaches none of them, and waits for ever.
func TestEtcd_AClientOfTheFaultsKnowsEachMember(t *testing.T) {
	e := environment{settings: &app{Etcd: "127.0.0.1:1,127.0.0.1:2"}, etcds: map[string]*clientv3.Client{}}
	defer e.close()
	client, err := e.Etcd(loadtest.Scenario{Flow: &loadtest.Flow{}})
	if err != nil {
		t.Fatal(err)
	}
	if got := client.Endpoints(); len(got) != 2 {
		t.Errorf("%q, want two addresses", got)
	}
}

// A replica that counts its own events could count what a run needs. (That the counts of replicas
// do not reach the verdict is tested by TestEvidence_OfAFaultIsWhatItHit.)
func TestNeeds_NoneIsCountedByReplicas(t *testing.T) {
	for _, l := range (&environment{}).lessons() {
		var needs []loadtest.Need
		for _, under := range l.Faults {
			needs = append(needs, under.Needs...)
		}
		if len(needs) == 0 {
			t.Errorf("%s needs nothing", l.Name)
		}
		for _, need := range needs {
			if l.Counts(need.Evidence) {
				t.Errorf("%s needs %s, which its replicas count", l.Name, need.Evidence)
			}
		}
		for _, name := range slices.Concat(l.Counted, []string{"lock_acquired", "lock_busy", "lock_lost", "lock_timed_out"}) {
			if !l.Counts(name) {
				t.Errorf("%s: %s is taken for evidence from outside", l.Name, name)
			}
		}
	}
}

// Follow-ups come on top: in inventory, clients read each order that they get.
func TestWhole_PlansHaveEnoughOperationsOfEachFlow(t *testing.T) {
	whole := app{}
	whole.setDefaults()
	planned := map[string]int{}
	for _, s := range (&environment{settings: &whole}).matrix() {
		load := s.Flow.WholeLoad(traffic.Load{Rate: whole.Rate, Duration: whole.Duration, Seed: whole.Seed, Replicas: 3}, s, lockTTLs[s.Flow.Name])
		for _, i := range s.Flow.Plan(load).Intents {
			if len(i.Refusals) == 0 {
				planned[s.Flow.Name]++
			}
		}
	}
	for flow, want := range map[string]int{"inventory": 0.9 * loadtest.CheckedLeast, "transfer": loadtest.CheckedLeast, "wallet": 1.05 * loadtest.CheckedLeast} {
		if planned[flow] < want {
			t.Errorf("%s: %d operations, want at least %d: see Flow.Long", flow, planned[flow], want)
		}
	}
}

func TestWhole_IsTheMatrixWithTheLoadByDefault(t *testing.T) {
	for _, c := range []struct {
		app   app
		whole bool
	}{
		{app{}, true},
		{app{Flow: "wallet"}, true},
		{app{Strategy: "inc"}, false},
		{app{Fault: "none"}, false},
		{app{Quick: true}, false},
		{app{Duration: durationWhole}, false},
		{app{Rate: 10}, false},
		{app{Nemesis: nemesisFlags{Nemesis: true}}, false},
	} {
		if c.app.setDefaults(); c.app.whole != c.whole {
			t.Errorf("%+v: whole is %v", c.app, c.app.whole)
		}
	}
}
