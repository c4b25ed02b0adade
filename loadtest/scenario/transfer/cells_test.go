// SPDX-License-Identifier: MIT

package transfer

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/crashmatrix"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

func TestCells_EachHasAPairOfAccountsThatPayEachOther(t *testing.T) {
	for _, n := range []int{1, 48} {
		plan := NewPlan(traffic.Load{Rate: 40, Duration: 6 * time.Second, Seed: 1, Replicas: 2})
		supplyCells(&plan, n)
		owner, of := map[uuid.UUID]int{}, map[uuid.UUID]int{}
		for _, a := range money.Accounts(plan) {
			owner[a.ID] = a.Client
		}
		for i := range n {
			asked := map[uuid.UUID]int64{}
			requests := []crashmatrix.Request{{Cell: i, Role: crashmatrix.Hit}, {Cell: i, Role: crashmatrix.Rival}, {Cell: i, Role: crashmatrix.Last}}
			for try := range 20 {
				requests = append(requests, crashmatrix.Request{Cell: i, Try: try})
			}
			for _, r := range requests {
				intent := cells.Request(plan, r)
				if intent.Key != r.Key() {
					t.Errorf("key %q, want %q", intent.Key, r.Key())
				}
				m := move(*intent)
				asked[m.From] += m.Amount
				if owner[m.From] != intent.Client || owner[m.From] == owner[m.To] {
					t.Errorf("cell %d: %s is paid by client %d from client %d to client %d", i, intent.Key, intent.Client, owner[m.From], owner[m.To])
				}
				for _, id := range []uuid.UUID{m.From, m.To} {
					if before, known := of[id]; known && before != i {
						t.Errorf("cells %d and %d have one account", before, i)
					}
					of[id] = i
				}
			}
			for id, amount := range asked {
				if amount > cellOpening {
					t.Errorf("cell %d: %s is to pay %d", i, id, amount)
				}
			}
		}
		if len(of) != 2*n {
			t.Errorf("%d accounts in %d cells", len(of), n)
		}
	}
}

// The accounts of a row pay at the same time: none of them pays another of the row.
func TestPartner_IsOfAnotherRowAndPaysItBack(t *testing.T) {
	plan := NewPlan(traffic.Load{Rate: 40, Duration: 6 * time.Second, Seed: 1, Replicas: 2})
	supplyCells(&plan, 5)
	accounts := money.Accounts(plan)
	place := map[uuid.UUID]int{}
	for i, a := range accounts {
		place[a.ID] = i
	}
	for i := range accounts {
		to := place[partner(accounts, i).ID]
		if to/groups == i/groups || to%groups != i%groups {
			t.Errorf("account %d pays account %d", i, to)
		}
		if back := place[partner(accounts, to).ID]; i >= clients && back != i {
			t.Errorf("account %d pays %d, and that one %d", i, to, back)
		}
	}
}
