// SPDX-License-Identifier: MIT

package loadtest

import (
	"strings"
	"testing"

	"shop/loadtest/internal/testbed"

	"github.com/google/go-cmp/cmp"
)

func TestReadCounters_AddsUpWhatIsEvidenceAndLeavesTheRest(t *testing.T) {
	counters := NewCounters(&Flow{Name: "inventory", Counted: []string{"guard_tripped"}})
	counts, err := counters.read(strings.NewReader(testbed.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"guard_tripped": 3, "lock_busy": 42}, counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := counters.read(strings.NewReader("no metrics at all")); err == nil {
		t.Error("nonsense is no error")
	}
}
