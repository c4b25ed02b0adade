package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/inventory"
	"shop/loadtest"
	"shop/transfer"
	"shop/wallet"
)

// prove runs the program itself, with the test binary as its replicas.
func prove(t *testing.T, args ...string) (out, folder string, err error) {
	t.Helper()
	t.Setenv(asShop, "yes")
	folder = t.TempDir()
	out, err = shop(t, append([]string{"prove", "--out", folder}, args...)...)
	return out, folder, err
}

func TestProve_ReplicasOfThisProgramAreLoadedAndAudited(t *testing.T) {
	for _, flow := range []string{"inventory", "transfer"} {
		t.Run(flow, func(t *testing.T) {
			report := proven(t, "--flow", flow, "--strategy", "row", "--fault", "none", "--replicas", "2", "--duration", "2s", "--rate", "100")
			s := report.Scenarios[0]
			if !report.AsExpected || s.Verdict != loadtest.Safe || s.Requests < 200 || s.OK+s.Rejected != s.Requests || s.OK == 0 || s.Rejected == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// proven is the report of a proof of one scenario, in all its forms.
func proven(t *testing.T, args ...string) (report loadtest.Report) {
	t.Helper()
	out, folder, err := prove(t, args...)
	if err != nil {
		t.Fatal(out, err)
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
	if !strings.Contains(out, "requests") || !strings.Contains(out, "index.html") {
		t.Errorf("printed:\n%s", out)
	}
	return report
}

func TestProve_TheControlOversellsAndIsCaught(t *testing.T) {
	out, _, err := prove(t, "--flow", "inventory", "--strategy", "naive", "--duration", "2s")
	if err != nil || !strings.Contains(out, "of them twice") {
		t.Errorf("error %v after\n%s", err, out)
	}
}

func TestProve_WhatCannotRunIsExitStatus2AndSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"no servers", map[string]string{"SHOP_POSTGRES_URL": "", "SHOP_REDIS_URL": ""}, nil, "go run ./compose/local exec"},
		{"no stack to break", map[string]string{"SHOP_STACK": ""}, []string{"--quick"}, "go run ./compose/local exec"},
		{"a stack that is gone", map[string]string{"SHOP_STACK": "/nowhere"}, []string{"--quick"}, "go run ./compose/local exec"},
		{"no such scenario", nil, []string{"--strategy", "hope"}, "inventory/redis+row/crash"},
		{"one replica", nil, []string{"--replicas", "1"}, "at least 2"},
		{"not a quick one", nil, []string{"--quick", "--strategy", "constant-lock"}, "not part of --quick"},
		{"a target with a strategy", nil, []string{"--target", "http://127.0.0.1:1", "--audit-sql", "prove.go", "--strategy", "row"}, "--target has none"},
		{"a target with --quick", nil, []string{"--target", "http://127.0.0.1:1", "--audit-sql", "prove.go", "--quick"}, "--target has none"},
		{"a target with a fault", nil, []string{"--target", "http://127.0.0.1:1", "--audit-sql", "prove.go", "--fault", "crash"}, "--target has none"},
		{"a target with a flow", nil, []string{"--target", "http://127.0.0.1:1", "--audit-sql", "prove.go", "--flow", "inventory"}, "--target has none"},
		{"a target without SQL", nil, []string{"--target", "http://127.0.0.1:1"}, "--audit-sql"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			out, _, err := prove(t, c.args...)
			if exitCode(err) != 2 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("exit status %d, %v; want 2 and %q\n%s", exitCode(err), err, c.says, out)
			}
		})
	}
}

func TestProve_SomebodyElsesServiceIsLoadedAndJudgedByTheirSQL(t *testing.T) {
	databaseURL, keys := newDatabase(t)
	url, key := startReplica(t, databaseURL, keys["alice"], "--strategy=row").url, keys["alice"]
	sql := filepath.Join(t.TempDir(), "audit.sql")
	queries := "-- name: lost\nSELECT key FROM proof_answers a LEFT JOIN orders o ON o.idempotency_key = a.key WHERE a.outcome = 'ok' AND o.id IS NULL;\n" +
		"-- name: ghost\nSELECT key FROM proof_answers a JOIN orders o ON o.idempotency_key = a.key WHERE a.outcome = 'rejected';\n"
	if err := os.WriteFile(sql, []byte(queries), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--target", url, "--audit-sql", sql, "--postgres-url", databaseURL, "--duration", "1s", "--rate", "100",
		"--header", "Authorization: Bearer " + key, "--path", "/v1/orders",
		"--body", `{"lines":[{"sku":"{{pick "ticket" "last-one"}}","quantity":{{int 1 2}}}]}`,
	}
	if out, _, err := prove(t, args...); err != nil {
		t.Errorf("%v after\n%s", err, out)
	}
	// a file where the folder should be: nothing is fired, and no path of a report is told
	if out, _, err := prove(t, append(args, "--out", sql)...); exitCode(err) != 2 || strings.Contains(out, "index.html") || strings.Contains(out, "requests to") {
		t.Errorf("no folder for the report: exit status %d, %v, want 2\n%s", exitCode(err), err, out)
	}
	if err := os.WriteFile(sql, []byte("SELECT id, 'sold' FROM orders;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, err := prove(t, args...); exitCode(err) != 1 {
		t.Errorf("a query that finds rows: exit status %d, want 1\n%s", exitCode(err), out)
	}
}

// CI runs the quick proof: a safe strategy that it leaves out may oversell unseen.
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
	for _, s := range loadtest.Quick(matrix()) {
		delete(left, s.Name())
	}
	for name, safe := range left {
		if safe {
			t.Errorf("%s is not part of the quick proof", name)
		}
	}
}
