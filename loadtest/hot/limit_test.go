// SPDX-License-Identifier: MIT

package main

import (
	"testing"
	"time"
)

// shortTurn returns the requests of a short turn, and the transactions that were counted.
func shortTurn(t *testing.T, p place, strategy string, clients int) (requests, counted int) {
	t.Helper()
	before, after := 0, 0
	sample, err := turn{p, strategy, clients, 0, 50 * time.Millisecond}.run(t.Context(), func() (err error) { before, err = transactions(t.Context(), p); return err })
	if err == nil {
		after, err = transactions(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(sample.Waits), after - before
}

func TestTransactions_AreTheBatches(t *testing.T) {
	const clients = 8
	for name, plain := range map[string]string{"product": "row", "account": "row", "wallet": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, drop, err := prepare(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := drop(); err != nil {
					t.Error(err)
				}
			})
			if requests, counted := shortTurn(t, p, "combined", clients); counted >= requests || 2*counted*clients < requests {
				t.Errorf("combined: %d transactions for %d requests of %d clients", counted, requests, clients)
			}
			if plain == "" {
				return // on a fast machine two credits have the same millisecond
			}
			if requests, counted := shortTurn(t, p, plain, clients); counted != requests {
				t.Errorf(plain+": %d transactions for %d requests", counted, requests)
			}
		})
	}
}
