package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// oneClient has nothing to say but its key.
var oneClient = Headers{"Idempotency-Key", []http.Header{{}}}

// shootingRange is a place to shoot at: several replicas with one handler.
type shootingRange struct {
	bases    []string
	history  *History
	recorder *Recorder
	client   *http.Client
	chaser   *Chaser
}

func newRange(t *testing.T, replicas int, handler http.HandlerFunc) *shootingRange {
	t.Helper()
	r := &shootingRange{history: NewHistory()}
	numbers := map[string]int{}
	for i := range replicas {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		r.bases = append(r.bases, server.URL)
		numbers[strings.TrimPrefix(server.URL, "http://")] = i
	}
	r.recorder = &Recorder{History: r.history, Header: "Idempotency-Key", Replicas: numbers, Classify: Classify}
	r.client = r.recorder.Client(16, 5*time.Second)
	t.Cleanup(r.client.CloseIdleConnections)
	r.chaser = NewChaser(r.client, r.bases, oneClient, r.history)
	return r
}

func (r *shootingRange) intend(keys ...string) []Shot {
	var shots []Shot
	for i, key := range keys {
		intent := buyIntent(key, []line{{0, 1}})
		r.history.Intend(*intent)
		shots = append(shots, Shot{0, i % len(r.bases), intent})
	}
	return shots
}

func (r *shootingRange) record(t *testing.T, key string) Record {
	t.Helper()
	for _, record := range r.history.Records() {
		if record.Key == key {
			return record
		}
	}
	t.Fatalf("nothing is recorded for %s", key)
	return Record{}
}

func answer(w http.ResponseWriter, status int, kind string) {
	header, body := problemBody(kind, status)
	w.Header().Set("Content-Type", header.Get("Content-Type"))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func TestAttack_RecordsKeyReplicaAndOutcomeOfEachAttempt(t *testing.T) {
	r := newRange(t, 2, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("Idempotency-Key") {
		case "bought":
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"id":%q}`, order1)
		case "sold-out":
			answer(w, http.StatusConflict, "out-of-stock")
		}
	})
	metrics := Attack(t.Context(), r.client, r.bases, oneClient, r.intend("bought", "sold-out"))
	if metrics.Requests != 2 {
		t.Errorf("vegeta made %d requests, want 2", metrics.Requests)
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

func TestAttack_CanBeDoneAgainAndFiresEveryShot(t *testing.T) {
	r := newRange(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for round := range 2 {
		metrics := Attack(t.Context(), r.client, r.bases, oneClient, r.intend("a", "b", "c"))
		if metrics.Requests != 3 {
			t.Errorf("round %d: %d requests, want 3", round, metrics.Requests)
		}
	}
}

func TestAttack_TwinsAreUnderWayTogether(t *testing.T) {
	var both sync.WaitGroup // each waits for the other: would hang if they came one by one
	both.Add(2)
	r := newRange(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		w.WriteHeader(http.StatusCreated)
	})
	shots := r.intend("twin")
	shots = append(shots, Shot{0, 1, shots[0].Intent})
	Attack(t.Context(), r.client, r.bases, oneClient, shots)
	if n := Overlaps(r.history.Records(), 2); n != 2 {
		t.Errorf("%d overlaps, want 2", n)
	}
}

func TestAttack_StopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newRange(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusCreated)
	})
	shots := r.intend("now", "later")
	shots[1].At = 300 * time.Millisecond
	if metrics := Attack(ctx, r.client, r.bases, oneClient, shots); metrics.Requests > 2 {
		t.Errorf("%d requests", metrics.Requests)
	}
	if sent := r.record(t, "later").Attempts; len(sent) != 0 {
		t.Errorf("sent after the end: %+v", sent)
	}
}
