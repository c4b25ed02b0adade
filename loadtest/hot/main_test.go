package main

import (
	"slices"
	"testing"
	"time"

	"shop/loadtest/bench"
)

// A row is missed without a word if its load is not in the list.
func TestCases_HaveEachLoadOfAHotKey(t *testing.T) {
	all := cases()
	has := func(name string, clients, processes int, work time.Duration) bool {
		return slices.ContainsFunc(all, func(c comparison) bool {
			return c.Case == name && c.Clients == clients && c.Processes == processes && c.Work == work
		})
	}
	for _, name := range []string{"product", "account", "wallet"} {
		for _, clients := range []int{1, 32, 256, 1024} {
			if !has(name, clients, 1, 0) {
				t.Errorf("%s: no row with %d clients", name, clients)
			}
		}
		if !has(name, 256, 3, 0) || !has(name, 32, 1, time.Millisecond) || !has(name, 33, 3, time.Millisecond) {
			t.Errorf("%s: no row with three processes, or with 1 ms of work in one and in three", name)
		}
	}
	for _, c := range all {
		if r := (bench.Row{Case: c.Case, Clients: c.Clients, Processes: c.Processes, WorkMS: c.Work.Seconds() * 1000}); r.Name() != c.String() {
			t.Errorf("the targets are those of %q, the row is %q", r.Name(), c)
		}
	}
}
