// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"testing"
	"time"

	bench "shop/loadtest/rows"
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
		for _, work := range []time.Duration{0, time.Millisecond} {
			for clients, ofThree := range map[int]int{1: 3, 32: 33, 256: 255, 1024: 1023} {
				if !has(name, clients, 1, work) || !has(name, ofThree, 3, work) {
					t.Errorf("%s, %v of work: no row with %d clients in one process, or with %d in three", name, work, clients, ofThree)
				}
			}
		}
	}
	for _, c := range all {
		if r := (bench.Row{Case: c.Case, Clients: c.Clients, Processes: c.Processes, WorkMS: c.Work.Seconds() * 1000}); r.Name() != c.String() {
			t.Errorf("the targets are those of %q, the row is %q", r.Name(), c)
		}
	}
}
