// SPDX-License-Identifier: MIT

package transfer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/traffic"
)

func held(h Hold, body string) traffic.Record {
	m := &Move{From: uuid.New(), To: uuid.New(), Amount: 50, Hold: &h}
	return traffic.Record{Intent: *moveIntent(3, "k", m), Outcome: traffic.OK, Body: []byte(body)}
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

func TestSettle_WithoutAHoldNothingFollows(t *testing.T) {
	left, refused, unreadable := held(Hold{Left: true}, `{}`), held(Hold{}, `{}`), held(Hold{}, `<html>`)
	refused.Outcome = traffic.Rejected
	paid := traffic.Record{Intent: *moveIntent(0, "k", &Move{}), Outcome: traffic.OK, Body: []byte(`{}`)}
	for _, r := range []traffic.Record{left, refused, unreadable, paid} {
		if requests := settle(r); len(requests) != 0 {
			t.Errorf("%+v: %+v", r, requests)
		}
	}
}

func TestSettle_AHoldMayBePostedOrVoidedTwiceAtOnceUnderTwoKeys(t *testing.T) {
	body := fmt.Sprintf(`{"id":%q,"expires_at":%q}`, transfer1, time.Now().Format(time.RFC3339Nano))
	for _, action := range []traffic.Action{PostHold, VoidHold} {
		requests := settle(held(Hold{Twice: action, Post: 1, Void: 2}, body))
		first, second := requests[0].Intent, requests[1].Intent
		if first.Action != action || second.Action != action || first.Key == second.Key || first.Path != second.Path || requests[0].Replica == requests[1].Replica {
			t.Errorf("%s: %+v and %+v", action, first, second)
		}
	}
}

// The follow-ups of many answers contain every kind of request.
func TestFollowUp_EachKindFollowsSomeTransfer(t *testing.T) {
	kinds := map[string]int{}
	count := func(r traffic.Record) {
		for _, request := range followUp(r) {
			i := request.Intent
			kinds[string(i.Action)+" "+strings.Join(i.Refusals, "")]++
			if i.Key == r.Key || len(i.Refusals) > 0 && len(i.Contends) > 0 {
				t.Errorf("%s follows %s: %+v", i.Key, r.Key, i)
			}
			if m := move(*i); m != nil && i.Action != Pay && i.Action != Reserve && m.Of != r.Made {
				t.Errorf("%s is about %s, not %s", i.Key, m.Of, r.Made)
			}
		}
	}
	for _, i := range NewPlan(quickLoad).Load() {
		id := traffic.DrawID(traffic.RandomFor(i.Key))
		done := traffic.Record{Intent: *i, Outcome: traffic.OK, Made: id, Body: fmt.Appendf(nil, `{"id":%q}`, id)}
		count(done)
		count(traffic.Record{Intent: *i, Outcome: traffic.Rejected, Attempts: []traffic.Attempt{{Outcome: traffic.Rejected, Problem: "insufficient-funds"}}})
		if i.Action == Reserve {
			count(traffic.Record{Intent: *endIntent(done, PostHold, id, 0), Outcome: traffic.OK, Made: id})
		}
	}
	want := []string{
		"read-transfer ", "read-transfer not-found", "post ", "void ", "post not-found", "void not-found", "post invalid-request", "post already-settled",
		"void already-settled", "pay idempotency-key-reused", "reserve idempotency-key-reused", "void idempotency-key-reused",
	}
	for _, kind := range want {
		if kinds[kind] < 3 {
			t.Errorf("%q follows %d times: %v", kind, kinds[kind], kinds)
		}
	}
	if len(kinds) != len(want) {
		t.Errorf("kinds: %v", kinds)
	}
}
