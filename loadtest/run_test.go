// SPDX-License-Identifier: MIT

package loadtest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

func TestRun_FollowUpsAreRecordedAndRetriedUntilTheyAreDecided(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		key := req.Header.Get("Idempotency-Key")
		mu.Lock()
		defer mu.Unlock()
		if asked[key]++; key != "hold" && asked[key] < 3 {
			testbed.Problem(w, http.StatusServiceUnavailable, "busy")
			return
		}
		if strings.HasPrefix(key, "void") {
			testbed.Problem(w, http.StatusConflict, "already-settled")
			return
		}
		testbed.Created(w, order1)
	})
	run, err := NewRun(t.Context(), bases, oneClient, time.Minute, lessons.Classify, lessons.Stored...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.followUp = func(r Record) (requests []ScheduledRequest) {
		if r.Key == "hold" {
			requests = []ScheduledRequest{{0, 0, buy("post-hold")}, {0, 1, buy("void-hold")}}
		}
		return requests
	}
	hold := buy("hold")
	run.Send(t.Context(), []ScheduledRequest{{0, 0, hold}, {0, 1, hold}})
	outcomes := map[string]Outcome{}
	for _, r := range run.History.Records() {
		outcomes[r.Key] = r.Outcome
	}
	if diff := cmp.Diff(map[string]Outcome{"hold": OK, "post-hold": OK, "void-hold": Rejected}, outcomes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"hold": 2, "post-hold": 3, "void-hold": 3}, asked); diff != "" {
		t.Errorf("how often each was sent (-want +got):\n%s", diff)
	}
}

func TestHeaders_EachClientSendsItsOwn(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[req.Header.Get("Idempotency-Key")] = req.Header.Get("Authorization")
	}))
	defer server.Close()
	headers := headersOf([]Credentials{{Key: "a"}, {Key: "b"}})
	run, err := NewRun(t.Context(), []string{server.URL}, headers, time.Second, lessons.Classify, lessons.Stored...)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	of := func(client int, key string) *Intent {
		i := buy(key)
		i.Client = client
		return i
	}
	run.Send(t.Context(), []ScheduledRequest{{0, 0, of(1, "of b")}, {0, 0, of(0, "of a")}})
	if diff := cmp.Diff(map[string]string{"of a": "Bearer a", "of b": "Bearer b"}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A nemesis compares the connections and goroutines of the replicas before the load with those after it.
func TestRun_LeavesNoConnectionOpenWhenItIsClosed(t *testing.T) {
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { testbed.Created(w, order1) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	run, err := NewRun(t.Context(), []string{server.URL}, oneClient, time.Minute, lessons.Classify, lessons.Stored...)
	if err != nil {
		t.Fatal(err)
	}
	run.Settle(t.Context(), 0, buy("one"))
	run.Close()
	if !fault.Within(t.Context(), 10*time.Second, closed) {
		t.Error("its connection is still open")
	}
}
