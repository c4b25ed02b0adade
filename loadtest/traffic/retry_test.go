// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

func TestRetry_SendsTheSameKeyUntilItIsDecided(t *testing.T) {
	var n atomic.Int64
	var requests sync.Map
	r := newTestRun(t, 3, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		requests.Store(req.Header.Get("Idempotency-Key")+string(body), true)
		switch n.Add(1) {
		case 1:
			breakConnection(w)
		case 2:
			testbed.Problem(w, http.StatusServiceUnavailable, "busy")
		case 3:
			testbed.Problem(w, http.StatusConflict, "in-progress")
		default:
			created(order1)(w)
		}
	})
	r.recorder.Undecided = func(record *Record) { r.run.Retry(t.Context(), record) }
	Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), r.intend("k"))
	r.run.Wait()
	record := r.record(t, "k")
	different := 0
	requests.Range(func(any, any) bool { different++; return true })
	if record.Outcome != OK || len(record.Attempts) != 4 || different != 1 {
		t.Errorf("outcome %s after %d attempts with %d different requests; want ok after 4 with 1", record.Outcome, len(record.Attempts), different)
	}
}

func TestRetry_GivesUpWithItsContextAndLeavesTheKeyUndecided(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	r := newTestRun(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) {
		case 3:
			cancel()
		case 6: // reached only if the Run did not stop
			created(order1)(w)
			return
		}
		testbed.Problem(w, http.StatusServiceUnavailable, "busy")
	})
	r.recorder.Undecided = func(record *Record) { r.run.Retry(ctx, record) }
	Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), r.intend("k"))
	r.run.Wait()
	record := r.record(t, "k") // unknown, if ctx ended before the last answer
	if undecided := record.Outcome == Open || record.Outcome == Unknown; !undecided || len(record.Attempts) != 3 {
		t.Errorf("outcome %s after %d attempts; want open or unknown after 3", record.Outcome, len(record.Attempts))
	}
}
