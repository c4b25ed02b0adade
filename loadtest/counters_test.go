package loadtest

import (
	"strings"
	"testing"

	"shop/loadtest/internal/testbed"

	"github.com/google/go-cmp/cmp"
)

func TestReadCounters_AddsUpWhatIsEvidenceAndLeavesTheRest(t *testing.T) {
	counters := NewCounters(map[string]map[string]string{
		"inventory_events_total": {"guard_tripped": "guard_tripped"}, "transfer_events_total": {"fence_refused": "fence_refused"},
	})
	counts, err := counters.read(strings.NewReader(testbed.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"guard_tripped": 3, "lock_busy": 42, "fence_refused": 5}, counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := counters.read(strings.NewReader("no metrics at all")); err == nil {
		t.Error("nonsense is no error")
	}
}
