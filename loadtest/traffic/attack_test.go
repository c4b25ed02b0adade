// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/loadtest/internal/testbed"
)

const (
	order1 = "00000000-0000-0000-0000-000000000001"
	order2 = "00000000-0000-0000-0000-000000000002"
)

// oneClient has headers with nothing but the idempotency key.
var oneClient = Headers{"Idempotency-Key", []http.Header{{}}}

// testRun has the parts of a Run, with several replicas that share one handler.
type testRun struct {
	bases    []string
	history  *History
	recorder *Recorder
	client   *http.Client
	run      *Run
}

func newTestRun(t *testing.T, replicas int, handler http.HandlerFunc) *testRun {
	t.Helper()
	bases := testbed.Serve(t, replicas, handler)
	run, err := NewRun(t.Context(), bases, oneClient, time.Minute, classify, refusals...)
	if err != nil {
		t.Fatal(err)
	}
	run.Recorder.Undecided = nil // a test retries by itself
	t.Cleanup(run.Close)
	return &testRun{bases, run.History, run.Recorder, run.Client, run}
}

// buy is the action of a purchase.
func buy(key string) *Intent {
	return &Intent{Key: key, Action: "buy", Method: http.MethodPost, Path: "/v1/orders", Body: []byte(`{}`), Contends: []string{"a cup"}}
}

func (r *testRun) intend(keys ...string) []ScheduledRequest {
	var schedule []ScheduledRequest
	for i, key := range keys {
		intent := buy(key)
		r.history.Intend(*intent)
		schedule = append(schedule, ScheduledRequest{0, i % len(r.bases), intent})
	}
	return schedule
}

func (r *testRun) record(t *testing.T, key string) Record {
	t.Helper()
	for _, record := range r.history.Records() {
		if record.Key == key {
			return record
		}
	}
	t.Fatalf("nothing is recorded for %s", key)
	return Record{}
}

func TestAttack_RecordsKeyReplicaAndOutcomeOfEachAttempt(t *testing.T) {
	r := newTestRun(t, 2, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("Idempotency-Key") {
		case "bought":
			testbed.Created(w, order1)
		case "sold-out":
			testbed.Problem(w, http.StatusConflict, "out-of-stock")
		}
	})
	results := Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), r.intend("bought", "sold-out"))
	if len(results) != 2 {
		t.Errorf("vegeta made %d requests, want 2", len(results))
	}
	bought, soldOut := r.record(t, "bought"), r.record(t, "sold-out")
	if bought.Outcome != OK || bought.Made.String() != order1 || bought.Attempts[0].Replica != 0 {
		t.Errorf("bought: %+v", bought)
	}
	if soldOut.Outcome != Rejected || soldOut.Attempts[0].Problem != "out-of-stock" || soldOut.Attempts[0].Replica != 1 {
		t.Errorf("sold out: %+v", soldOut)
	}
	for _, a := range append(bought.Attempts, soldOut.Attempts...) {
		if a.End <= a.Start || a.Sends != 1 {
			t.Errorf("attempt %+v: want a time span and one send", a)
		}
	}
}

func TestAttack_CanBeDoneAgainAndSendsEveryRequest(t *testing.T) {
	r := newTestRun(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for round := range 2 {
		results := Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), r.intend("a", "b", "c"))
		if len(results) != 3 {
			t.Errorf("round %d: %d requests, want 3", round, len(results))
		}
	}
}

func TestAttack_DuplicatesAreUnderWayTogether(t *testing.T) {
	var both sync.WaitGroup // each handler waits for the other: the test would hang if the requests came one by one
	both.Add(2)
	r := newTestRun(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		w.WriteHeader(http.StatusCreated)
	})
	schedule := r.intend("twice")
	schedule = append(schedule, ScheduledRequest{0, 1, schedule[0].Intent})
	Attack(t.Context(), r.client, r.bases, oneClient, time.Now(), schedule)
	if n := len(r.history.Record("twice").Attempts); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

// roundTrips answers without a network, so that a test can use fake time.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestAttack_StopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &testRun{bases: []string{"http://replica"}, history: NewHistory()}
		r.recorder = &Recorder{History: r.history, Header: "Idempotency-Key", Classify: classify, Stored: refusals, Next: roundTrips(func(*http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
		})}
		schedule := r.intend("now", "later")
		schedule[1].At = time.Hour
		if results := Attack(ctx, &http.Client{Transport: r.recorder}, r.bases, oneClient, time.Now(), schedule); len(results) > 2 {
			t.Errorf("%d requests", len(results))
		}
		if now, later := r.record(t, "now"), r.record(t, "later"); now.Outcome != OK || len(later.Attempts) != 0 {
			t.Errorf("%+v; sent after the end: %+v", now, later.Attempts)
		}
	})
}
