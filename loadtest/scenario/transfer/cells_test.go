package transfer

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
)

func TestCells_EachHasAPairOfAccountsThatPayEachOther(t *testing.T) {
	const n = 48
	plan := NewPlan(loadtest.Load{Rate: 40, Duration: 6 * time.Second, Seed: 1, Replicas: 2})
	supplyCells(&plan, n)
	owner, of := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for i, a := range money.Accounts(plan) {
		owner[a.ID] = a.Client
		if i >= clients && partner(money.Accounts(plan), i).Client == a.Client {
			t.Errorf("account %d: its partner is of the same client", i)
		}
	}
	for i := range n {
		r := cellRequests(plan, i, loadtest.Cell{})
		asked := map[uuid.UUID]int64{}
		for _, intent := range append(append(r.Rivals, r.Hit), r.Warm...) {
			m := move(*intent)
			asked[m.From] += m.Amount
			if owner[m.From] != intent.Client {
				t.Errorf("cell %d: %s pays from another client's account", i, intent.Key)
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
				t.Errorf("cell %d: %s is asked for %d", i, id, amount)
			}
		}
		if r.Hit.Key != loadtest.CellKey(i) {
			t.Errorf("cell %d: key %q", i, r.Hit.Key)
		}
	}
	if len(of) != 2*n {
		t.Errorf("%d accounts in %d cells", len(of), n)
	}
}
