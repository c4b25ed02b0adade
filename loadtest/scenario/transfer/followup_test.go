package transfer

import (
	"fmt"
	"testing"
	"time"

	"shop/loadtest"

	"github.com/google/uuid"
)

func held(h Hold, body string) loadtest.Record {
	m := &Move{From: uuid.New(), To: uuid.New(), Amount: 50, Hold: &h}
	return loadtest.Record{Intent: *moveIntent(3, "k", m), Outcome: loadtest.OK, Body: []byte(body)}
}

func TestSettle_AHoldIsPostedAndVoidedAtOneMomentOnTwoReplicas(t *testing.T) {
	end := time.Now().Add(time.Minute)
	body := fmt.Sprintf(`{"id":%q,"expires_at":%q}`, transfer1, end.Format(time.RFC3339Nano))
	requests := settle(held(Hold{Settle: -time.Second, Part: true, Post: 1, Void: 2}, body))
	if len(requests) != 2 || (requests[0].At-requests[1].At).Abs() > 0 || requests[0].Replica != 1 || requests[1].Replica != 2 {
		t.Fatalf("%+v", requests)
	}
	if at := requests[0].At; at > 59*time.Second || at < 50*time.Second {
		t.Errorf("in %v; want a second before its end, which is in a minute", at)
	}
	post, void := requests[0].Intent, requests[1].Intent
	if post.Path != "/v1/transfers/"+transfer1+"/post" || string(post.Body) != `{"amount":25}` || post.Client != 3 || post.Key != "post-k" {
		t.Errorf("post: %+v %s", post, post.Body)
	}
	if void.Path != "/v1/transfers/"+transfer1+"/void" || len(void.Body) != 0 || void.Key != "void-k" || move(*void).Of.String() != transfer1 {
		t.Errorf("void: %+v %s", void, void.Body)
	}
	if whole := settle(held(Hold{}, body))[0].Intent; len(whole.Body) != 0 || move(*whole).Amount != 0 {
		t.Errorf("all of it: %+v %s", whole, whole.Body)
	}
}

func TestSettle_NothingFollowsWhereThereIsNoHoldToEnd(t *testing.T) {
	left, refused, unreadable := held(Hold{Left: true}, `{}`), held(Hold{}, `{}`), held(Hold{}, `<html>`)
	refused.Outcome = loadtest.Rejected
	paid := loadtest.Record{Intent: *moveIntent(0, "k", &Move{}), Outcome: loadtest.OK, Body: []byte(`{}`)}
	for _, r := range []loadtest.Record{left, refused, unreadable, paid} {
		if requests := settle(r); len(requests) != 0 {
			t.Errorf("%+v: %+v", r, requests)
		}
	}
}

// What follows an answer goes through the same recorder, and is sent again until
// it is decided; only the retrier waits for it.
