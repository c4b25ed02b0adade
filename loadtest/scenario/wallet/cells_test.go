// SPDX-License-Identifier: MIT

package wallet

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/crashmatrix"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/wallet"
)

func TestCells_EachHasAPairOfWalletsThatPayEachOther(t *testing.T) {
	const n = 32
	plan := NewPlan(traffic.Load{Rate: 20, Duration: 6 * time.Second, Seed: 1, Replicas: 2})
	before := money.Accounts(plan)
	supplyCells(&plan, n)
	wallets := money.Accounts(plan)
	for i := range twoOfOne {
		if wallets[len(wallets)-1-i] != before[len(before)-1-i] {
			t.Error("the last wallets no longer belong to one client")
		}
	}
	owner, of := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, w := range wallets {
		owner[w.ID] = w.Client
	}
	for i := range n {
		step := string(wallet.Steps()[i%len(wallet.Steps())])
		var requests []crashmatrix.Request
		for _, role := range []crashmatrix.Role{crashmatrix.Hit, crashmatrix.Rival, crashmatrix.Last} {
			requests = append(requests, crashmatrix.Request{Cell: i, Step: step, Role: role})
		}
		for try := range 20 {
			requests = append(requests, crashmatrix.Request{Cell: i, Step: step, Try: try})
		}
		if hit := cells.Request(plan, requests[0]).Action; (hit == Credit) != (step == string(wallet.AfterCall)) {
			t.Errorf("%s is hit by a %s", step, hit)
		}
		asked := map[uuid.UUID]int64{}
		for _, r := range requests {
			intent := cells.Request(plan, r)
			if intent.Key != r.Key() {
				t.Errorf("key %q, want %q", intent.Key, r.Key())
			}
			m := move(*intent)
			asked[m.From] += m.Amount
			if owner[m.wallet()] != intent.Client {
				t.Errorf("cell %d: %s is about another client's wallet", i, intent.Key)
			}
			for _, id := range []uuid.UUID{m.From, m.To} {
				if other, known := of[id]; known && other != i && id != uuid.Nil {
					t.Errorf("cells %d and %d have one wallet", other, i)
				}
				of[id] = i
			}
		}
		delete(asked, uuid.Nil) // credits have no payer
		for id, amount := range asked {
			if amount > cellOpening {
				t.Errorf("cell %d: %s is to pay %d", i, id, amount)
			}
		}
	}
}
