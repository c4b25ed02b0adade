// SPDX-License-Identifier: MIT

package loadtest

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/traffic"
)

// The first requests wait until their clients hang up; the retries succeed.
func TestHangUps_ARequestWhoseClientHangsUpIsRetried(t *testing.T) {
	calm := make(chan struct{})
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-calm:
			w.WriteHeader(http.StatusCreated)
		case <-req.Context().Done():
		}
	})
	run, err := traffic.NewRun(t.Context(), bases, anyClient, time.Minute, lessons.Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	keys := []string{"a", "b", "c", "d"}
	var schedule []traffic.ScheduledRequest
	for n, key := range keys {
		schedule = append(schedule, traffic.ScheduledRequest{Replica: n % 2, Intent: buyOne(key)})
	}
	var sent sync.WaitGroup
	sent.Go(func() { run.Send(t.Context(), schedule) })
	events, err := HangUps{Trial: &Trial{Run: run}}.Inject(t.Context(), 100*time.Millisecond)
	close(calm)
	sent.Wait()
	if err != nil || len(events) != 1 || events[0].Hits == 0 || events[0].Seen["hung_up"] != events[0].Hits {
		t.Fatalf("%+v, %v", events, err)
	}
	attempts := 0
	for _, key := range keys {
		record := run.History.Record(key)
		if record.Outcome != traffic.OK {
			t.Errorf("%s: %+v", key, record)
		}
		attempts += len(record.Attempts)
	}
	if want := len(keys) + int(events[0].Hits); attempts != want {
		t.Errorf("%d attempts, want %d: one for each key, and one for each client that hung up", attempts, want)
	}
	if n := run.Recorder.HangUp(); n != 0 {
		t.Errorf("%d clients hung up after their answers", n)
	}
}
