package loadtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func held(h Hold, body string) Record {
	m := &Move{From: uuid.New(), To: uuid.New(), Amount: 50, Hold: &h}
	return Record{Intent: *moveIntent(3, "k", m), Outcome: OK, body: []byte(body)}
}

func TestSettle_AHoldIsPostedAndVoidedAtOneMomentOnTwoReplicas(t *testing.T) {
	end := time.Now().Add(time.Minute)
	body := fmt.Sprintf(`{"id":%q,"expires_at":%q}`, transfer1, end.Format(time.RFC3339Nano))
	shots := settle(held(Hold{Settle: -time.Second, Part: true, Post: 1, Void: 2}, body))
	if len(shots) != 2 || (shots[0].At-shots[1].At).Abs() > 0 || shots[0].Replica != 1 || shots[1].Replica != 2 {
		t.Fatalf("%+v", shots)
	}
	if at := shots[0].At; at > 59*time.Second || at < 50*time.Second {
		t.Errorf("in %v; want a second before its end, which is in a minute", at)
	}
	post, void := shots[0].Intent, shots[1].Intent
	if post.Path != "/v1/transfers/"+transfer1+"/post" || string(post.Body) != `{"amount":25}` || post.Client != 3 || post.Key != "post-k" {
		t.Errorf("post: %+v %s", post, post.Body)
	}
	if void.Path != "/v1/transfers/"+transfer1+"/void" || len(void.Body) != 0 || void.Key != "void-k" || void.Move.Of.String() != transfer1 {
		t.Errorf("void: %+v %s", void, void.Body)
	}
	if whole := settle(held(Hold{}, body))[0].Intent; len(whole.Body) != 0 || whole.Move.Amount != 0 {
		t.Errorf("all of it: %+v %s", whole, whole.Body)
	}
}

func TestSettle_NothingFollowsWhereThereIsNoHoldToEnd(t *testing.T) {
	left, refused, unreadable := held(Hold{Left: true}, `{}`), held(Hold{}, `{}`), held(Hold{}, `<html>`)
	refused.Outcome = Rejected
	paid := Record{Intent: *moveIntent(0, "k", &Move{}), Outcome: OK, body: []byte(`{}`)}
	for _, r := range []Record{left, refused, unreadable, paid} {
		if shots := settle(r); len(shots) != 0 {
			t.Errorf("%+v: %+v", r, shots)
		}
	}
}

// What follows an answer goes through the same recorder, and is sent again until
// it is decided; it is not waited for by anybody but the chaser.
func TestVolley_WhatFollowsIsRecordedAndChasedUntilItIsDecided(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	v, plan := volleyAt(t, func(w http.ResponseWriter, req *http.Request) {
		key := req.Header.Get("Idempotency-Key")
		mu.Lock()
		defer mu.Unlock()
		if asked[key]++; key != "hold" && asked[key] < 3 {
			answer(w, http.StatusServiceUnavailable, "busy")
			return
		}
		if strings.HasPrefix(key, "void") {
			answer(w, http.StatusConflict, "already-settled")
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%q,"expires_at":%q}`, transfer1, time.Now().Format(time.RFC3339Nano))
	})
	v.follow = settle
	v.fire(t.Context(), plan)
	outcomes := map[string]Outcome{}
	for _, r := range v.history.Records() {
		outcomes[r.Key] = r.Outcome
	}
	if diff := cmp.Diff(map[string]Outcome{"hold": OK, "post-hold": OK, "void-hold": Rejected}, outcomes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"hold": 2, "post-hold": 3, "void-hold": 3}, asked); diff != "" {
		t.Errorf("how often each was sent (-want +got):\n%s", diff)
	}
}

// volleyAt is a volley at a handler, and a hold that is sent to it twice at once.
func volleyAt(t *testing.T, handler http.HandlerFunc) (*volley, []Shot) {
	t.Helper()
	r := newRange(t, 2, handler)
	v, err := newVolley(t.Context(), r.bases, oneClient, 5*time.Second, Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	hold := moveIntent(0, "hold", &Move{From: uuid.New(), To: uuid.New(), Amount: 5, Hold: &Hold{Void: 1}})
	return v, []Shot{{0, 0, hold}, {0, 1, hold}}
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
	v, err := newVolley(t.Context(), []string{server.URL}, headers, time.Second, Classify)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	v.fire(t.Context(), []Shot{{0, 0, moveIntent(1, "of b", &Move{})}, {0, 0, moveIntent(0, "of a", &Move{})}})
	if diff := cmp.Diff(map[string]string{"of a": "Bearer a", "of b": "Bearer b"}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
