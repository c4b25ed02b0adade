// SPDX-License-Identifier: MIT

package loadtest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"shop/loadtest/internal/testbed"
)

func TestReadCounters_AddsUpWhatIsEvidenceAndLeavesTheRest(t *testing.T) {
	counters := NewCounters(&Flow{Name: "inventory", Counted: []string{"guard_tripped"}})
	read := func(page string) (map[string]*dto.MetricFamily, error) {
		bases := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
		return scrape(t.Context(), strings.TrimPrefix(bases[0], "http://"))
	}
	metrics, err := read(testbed.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"guard_tripped": 3, "lock_busy": 42}, counters.read(metrics)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := read("no metrics at all"); err == nil {
		t.Error("nonsense is no error")
	}
}
