package loadtest

import (
	"slices"
	"strings"
	"testing"

	"shop/inventory"
	"shop/transfer"

	"github.com/google/go-cmp/cmp"
)

const exposition = `# TYPE inventory_events_total counter
inventory_events_total{kind="guard_tripped",strategy="redis+row"} 2
inventory_events_total{kind="guard_tripped",strategy="row"} 1
inventory_events_total{kind="something_new",strategy="row"} 9
# TYPE transfer_events_total counter
transfer_events_total{kind="fence_refused",strategy="etcd-fenced"} 5
# TYPE wallet_events_total counter
wallet_events_total{kind="conflict",strategy="lockid"} 6
# TYPE locking_events_total counter
locking_events_total{kind="busy",store="redis"} 40
locking_events_total{kind="busy",store="etcd"} 2
locking_events_total{kind="released",store="redis"} 7
# TYPE locking_wait_seconds histogram
locking_wait_seconds_bucket{store="redis",le="+Inf"} 3
locking_wait_seconds_sum{store="redis"} 1
locking_wait_seconds_count{store="redis"} 3
`

func TestReadCounters_AddsUpWhatIsEvidenceAndLeavesTheRest(t *testing.T) {
	counts, err := readCounters(strings.NewReader(exposition))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"guard_tripped": 3, "lock_busy": 42, "fence_refused": 5, "conflict": 6}, counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readCounters(strings.NewReader("no metrics at all")); err == nil {
		t.Error("nonsense is no error")
	}
}

func TestEvidence_EveryNumberThatIsCollectedIsExplained(t *testing.T) {
	for _, names := range counted {
		for _, name := range names {
			if evidenceMeans[name] == "" {
				t.Errorf("%s is not explained on the page", name)
			}
		}
	}
	for _, check := range slices.Concat(inventory.Invariants, HistoryChecks, SoldChecks, transfer.Invariants, MoveChecks) {
		if means(check.Invariant) == "" || check.Means == "" {
			t.Errorf("%s: its invariant, or its result, is not explained", check.Name)
		}
	}
	for _, check := range walletChecks() {
		if means(check.Invariant) == "" || check.Means == "" {
			t.Errorf("%s: its invariant, or its result, is not explained", check.Name)
		}
	}
}
