// SPDX-License-Identifier: MIT

package loadtest

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/traffic"
)

// The table and the page say how the count of writes differs from that of vegeta: second copies and reads are requests
// too, a retry and a follow-up are none.
func TestResult_CountsKeysWhereVegetaCountsPlannedRequests(t *testing.T) {
	var busy atomic.Bool
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Idempotency-Key") == "busy" && busy.CompareAndSwap(false, true) {
			testbed.Problem(w, http.StatusServiceUnavailable, "busy")
			return
		}
		testbed.Created(w, "00000000-0000-0000-0000-000000000001")
	})
	run, err := traffic.NewRun(t.Context(), bases, traffic.Headers{Key: "Idempotency-Key", Clients: []http.Header{{}}}, time.Minute, lessons.Classify)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	run.Follow = func(r traffic.Record) []traffic.ScheduledRequest {
		if r.Key != "twice" {
			return nil
		}
		return []traffic.ScheduledRequest{{Intent: buyOne("follow-up")}}
	}
	twice, read := buyOne("twice"), buyOne("read")
	read.Reads = true
	sent := run.Send(t.Context(), []traffic.ScheduledRequest{{Intent: twice}, {Replica: 1, Intent: twice}, {Intent: read}, {Intent: buyOne("busy")}})
	run.Wait()

	var result Result
	result.measure(run.History.Records(), time.Second)
	var metrics vegeta.Metrics
	for _, s := range sent {
		metrics.Add(&s)
	}
	metrics.Close()
	const copies, reads, followUps = 1, 1, 1
	if result.Requests != 3 || result.OK != 3 || result.Reads != reads || metrics.Requests != uint64(result.Requests+copies+reads-followUps) {
		t.Errorf("%d writes, %d ok, %d reads, and vegeta counts %d; want 3, 3, 1 and 4", result.Requests, result.OK, result.Reads, metrics.Requests)
	}
	if attempts := len(run.History.Record("busy").Attempts); attempts != 2 {
		t.Errorf("%d attempts of the busy key: nothing was retried", attempts)
	}
}
