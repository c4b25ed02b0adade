// SPDX-License-Identifier: MIT

package traffic

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/internal/testbed"
)

func (r *testRun) send(t *testing.T, base, key string) error {
	t.Helper()
	r.history.Intend(*buy(key))
	return r.again(t, base, key)
}

func (r *testRun) again(t *testing.T, base, key string) error {
	t.Helper()
	return r.run.sendTo(t.Context(), base, *buy(key))
}

// breakConnection closes the client's connection without an answer.
func breakConnection(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// A bare Transport sends this request twice, because it has an Idempotency-Key
// and the connection was used before; the caller does not learn of the first.
func TestRecorder_NetHTTPRetriesNothingByItself(t *testing.T) {
	var arrived atomic.Int64
	r := newTestRun(t, 1, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Idempotency-Key") == "warm" {
			w.WriteHeader(http.StatusCreated)
			return
		}
		arrived.Add(1)
		breakConnection(w)
	})
	if err := r.send(t, r.bases[0], "warm"); err != nil {
		t.Fatal(err)
	}
	if err := r.send(t, r.bases[0], "cut"); err == nil {
		t.Error("no error for a request without an answer")
	}
	record := r.record(t, "cut")
	if len(record.Attempts) != 1 || record.Attempts[0].Outcome != Unknown {
		t.Errorf("recorded %+v, want one attempt of unknown outcome", record.Attempts)
	}
	if arrived.Load() != 1 || record.Attempts[0].Sends != 1 {
		t.Errorf("%d arrived, %d written; want 1 and 1", arrived.Load(), record.Attempts[0].Sends)
	}

	bare := &http.Transport{}
	defer bare.CloseIdleConnections()
	r.recorder.Next = nil // the control: without the recorder the server sees more than the client knows
	r.run.Client = &http.Client{Transport: bare}
	for tries := 0; tries < 20 && arrived.Load() < 2; tries++ { // a connection is not always reused
		arrived.Store(0)
		_ = r.again(t, r.bases[0], "warm")
		_ = r.again(t, r.bases[0], "cut")
	}
	if arrived.Load() < 2 {
		t.Errorf("a bare Transport sent it %d time: this test proves nothing any more", arrived.Load())
	}
}

func TestRecorder_KnowsWhatAReplicaHasNotAnswered(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	r := newTestRun(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-answer
		w.WriteHeader(http.StatusCreated)
	})
	r.history.Intend(*buy("k"))
	done := make(chan error, 1)
	go func() { done <- r.again(t, r.bases[1], "k") }()
	<-arrived
	if here, there := r.recorder.UnderWay(1), r.recorder.UnderWay(0); here != 1 || there != 0 {
		t.Errorf("%d and %d under way, want 1 and 0", here, there)
	}
	answer <- true
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := r.recorder.UnderWay(1); n != 0 {
		t.Errorf("%d under way after the answer", n)
	}
}

func TestRecorder_ARefusedConnectionIsOpenABrokenAnswerIsUnknown(t *testing.T) {
	r := newTestRun(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":`)) // an incomplete answer
	})
	if err := r.send(t, r.bases[0], "half"); err == nil {
		t.Error("half an answer is no error")
	}
	if got := r.record(t, "half"); got.Outcome != Unknown {
		t.Errorf("half an answer: %s, want %s", got.Outcome, Unknown)
	}
	if err := r.send(t, "http://127.0.0.1:1", "unheard"); err == nil {
		t.Error("no listener, and no error")
	}
	if got := r.record(t, "unheard"); got.Outcome != Open || got.Attempts[0].Sends != 0 {
		t.Errorf("no listener: %+v, want %s and nothing sent", got, Open)
	}
}

func TestRecorder_DifferentFinalAnswersToOneKeyDiverge(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  []func(http.ResponseWriter)
		outcome  Outcome
		diverged bool
	}{
		{"the same order twice", []func(http.ResponseWriter){created(order1), created(order1)}, OK, false},
		{"two orders", []func(http.ResponseWriter){created(order1), created(order2)}, OK, true},
		{"refused, then bought", []func(http.ResponseWriter){refused("out-of-stock"), created(order1)}, OK, true},
		{"bought, then refused", []func(http.ResponseWriter){created(order1), refused("out-of-stock")}, OK, true},
		{"unknown, then bought", []func(http.ResponseWriter){refused("outcome-unknown"), created(order1)}, OK, false},
		{"expired, then settled: two answers that are kept", []func(http.ResponseWriter){refused("expired"), refused("already-settled")}, Rejected, true},
		{"busy, then refused", []func(http.ResponseWriter){refused("busy"), refused("out-of-stock")}, Rejected, false},
		{"bought, then busy", []func(http.ResponseWriter){created(order1), refused("busy")}, OK, false},
		{"unknown, then busy", []func(http.ResponseWriter){refused("internal"), refused("busy")}, Unknown, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			r := newTestRun(t, 1, func(w http.ResponseWriter, _ *http.Request) { c.answers[n.Add(1)-1](w) })
			_ = r.send(t, r.bases[0], "k")
			_ = r.again(t, r.bases[0], "k")
			record := r.record(t, "k")
			if record.Outcome != c.outcome || record.Diverged != c.diverged || len(record.Attempts) != 2 {
				t.Errorf("outcome %s, diverged %v, %d attempts; want %s, %v, 2",
					record.Outcome, record.Diverged, len(record.Attempts), c.outcome, c.diverged)
			}
		})
	}
}

func TestRecorder_OnlyAStoredRefusalMustBeTheSameByteForByte(t *testing.T) {
	for kind, diverged := range map[string]bool{"out-of-stock": true, "forbidden": false} {
		var left atomic.Int64
		r := newTestRun(t, 1, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"type":"/problems/%s","left":%d}`, kind, left.Add(1))
		})
		_ = r.send(t, r.bases[0], "k")
		_ = r.again(t, r.bases[0], "k")
		if got := r.record(t, "k"); got.Outcome != Rejected || got.Diverged != diverged {
			t.Errorf("%s, twice with another body: %s, diverged %v; want %s, %v", kind, got.Outcome, got.Diverged, Rejected, diverged)
		}
	}
}

func created(id string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { testbed.Created(w, id) }
}

func refused(kind string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { testbed.Problem(w, http.StatusConflict, kind) }
}

// Two intents with one idempotency key have a record each.
func TestRecorder_IntentsThatShareAKeyHaveARecordEach(t *testing.T) {
	var got []string
	r := newTestRun(t, 1, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(historyKey) != "" {
			t.Error("the service sees the name of an intent")
		}
		got = append(got, req.Header.Get("Idempotency-Key")+" "+req.URL.Path)
		created(order1)(w)
	})
	run, err := NewRun(t.Context(), r.bases, Headers{"Idempotency-Key", []http.Header{{}}}, time.Minute, classify, refusals...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	for _, name := range []string{"a", "b"} {
		run.Settle(t.Context(), 0, &Intent{Key: name, SharedKey: "shared", Method: http.MethodPost, Path: "/" + name})
	}
	run.Settle(t.Context(), 0, &Intent{Key: "c", Method: http.MethodPost, Path: "/c"})
	if diff := cmp.Diff([]string{"shared /a", "shared /b", "c /c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, record := range run.History.Records() {
		if len(record.Attempts) != 1 || record.Outcome != OK {
			t.Errorf("%s: %+v", record.Key, record.Attempts)
		}
	}
}
