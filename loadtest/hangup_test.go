// SPDX-License-Identifier: MIT

package loadtest

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// The first requests wait until their clients hang up; the retries succeed.
func TestHangUps_ARequestWhoseClientHangsUpIsRetried(t *testing.T) {
	calm := make(chan struct{})
	r := newTestRun(t, 2, func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-calm:
			w.WriteHeader(http.StatusCreated)
		case <-req.Context().Done():
		}
	})
	keys := []string{"a", "b", "c", "d"}
	schedule := r.intend(keys...)
	trial := &Trial{Run: &Run{Retrier: r.retrier, recorder: r.recorder}}
	r.recorder.Undecided = func(record *Record) { r.retrier.Retry(t.Context(), record) }
	var sent sync.WaitGroup
	sent.Go(func() { Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), schedule) })
	events, err := HangUps{Trial: trial}.Inject(t.Context(), 100*time.Millisecond)
	close(calm)
	sent.Wait()
	r.retrier.Wait()
	if err != nil || len(events) != 1 || events[0].Hits == 0 || events[0].Seen["hung_up"] != events[0].Hits {
		t.Fatalf("%+v, %v", events, err)
	}
	attempts := 0
	for _, key := range keys {
		record := r.record(t, key)
		if record.Outcome != OK {
			t.Errorf("%s: %+v", key, record)
		}
		attempts += len(record.Attempts)
	}
	if want := len(keys) + int(events[0].Hits); attempts != want {
		t.Errorf("%d attempts, want %d: one for each key, and one for each client that hung up", attempts, want)
	}
	if n := r.recorder.hangUp(); n != 0 {
		t.Errorf("%d clients hung up after their answers", n)
	}
}
