// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/loadtest/judge"
	"shop/loadtest/linear"
)

// sales writes a history of purchases of the only cup.
func sales(t *testing.T, buyers ...string) string {
	t.Helper()
	h := linear.History{Header: linear.Header{Flow: "inventory", Given: []byte(`[{"SKU":"cup","Quantity":1}]`)}}
	for _, b := range buyers {
		h.Operations = append(h.Operations, linear.Operation{
			Key: b, Method: "POST", Path: "/v1/orders", Body: []byte(`{"lines":[{"sku":"cup","quantity":1}]}`),
			Call: 1, Return: 2, Outcome: linear.OK, Answer: []byte(`{"id":"` + b + `"}`),
		})
	}
	name := filepath.Join(t.TempDir(), judge.HistoryFile)
	if err := judge.WriteHistory(name, h); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCheck_HistoriesAreJudgedWithoutAServer(t *testing.T) {
	t.Setenv("SHOP_POSTGRES_URL", "")
	legal, illegal := sales(t, "ann"), sales(t, "ann", "bob")
	foreign := filepath.Join(t.TempDir(), "other.jsonl")
	if err := os.WriteFile(foreign, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"legal", []string{legal}, asExpected, "1 operations in 1 partitions: legal, in "},
		{"illegal", []string{legal, illegal}, notAsExpected, "2 operations in 1 partitions: 1 illegal"},
		{"no operation", []string{sales(t)}, notAsExpected, "0 operations in 1 partitions: nothing to check"},
		{"no history", []string{foreign, illegal}, couldNotRun, "1 illegal"},
		{"no file", []string{filepath.Join(t.TempDir(), "none")}, couldNotRun, ""},
		{"no time", []string{"--check-time", "0s", legal}, couldNotRun, ""},
		{"nothing to check", nil, couldNotRun, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			status, err := run(t.Context(), append([]string{"check"}, c.args...), &out, t.Output())
			if status != c.status || (err == nil) != (status == asExpected) || !strings.Contains(out.String(), c.says) {
				t.Errorf("exit status %d, %v\n%s", status, err, out.String())
			}
		})
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(illegal), "illegal-1.html")); err != nil {
		t.Errorf("it is not drawn: %v", err)
	}
}
